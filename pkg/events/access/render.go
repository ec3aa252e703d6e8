package access

import (
	"fmt"
	"strconv"
	"strings"
)

// heading is the head of the file.
const heading = `# Who may do what on the bus: include this from nats.conf, or give it to millrace bus with
# --nats-accounts, and start the server with the passwords in its environment. Made by
# "millrace bus accounts"; edit pkg/events/access, not this file.
#   all in one: --nats-url=nats://millrace:$MILLRACE_PASSWORD@nats-0:4222,...
#   services:   provisioner, watcher, reconcilers, writer and notary, with $WATCHER_PASSWORD and so on;
#               or for writer three that share out the controllers, writer-workloads and so on
#   readers:    --nats-url=nats://reader:$READER_PASSWORD@nats-0:4222,...
#   shadows:    --nats-url=nats://shadow:$SHADOW_PASSWORD@nats-0:4222,...
# The streams are in the account MILLRACE. Each service is in an account without streams: an
# answer that it asks for on another subject is stored nowhere. It publishes its own messages,
# asks JetStream for what it reads, under another name, and the provisioner for streams and
# consumers, which it may not make: who makes one can have the server send what is stored to
# any subject. Readers and shadows hear what is published; shadows also say what they find.
# Streams that were made without accounts are not found in MILLRACE.
`

// String is the file in the configuration format of a NATS server. Every element of a list is on
// its own line, because there a line break separates like a comma.
func (f File) String() string {
	var b strings.Builder
	b.WriteString(heading + "accounts {\n")
	for _, a := range f.Accounts {
		fmt.Fprintf(&b, "  %s {\n", a.Name)
		if a.JetStream {
			b.WriteString("    jetstream: enabled\n")
		}
		list(&b, "    ", "users", a.Users, User.String)
		list(&b, "    ", "exports", a.Exports, Export.String)
		list(&b, "    ", "imports", a.Imports, Import.String)
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func list[T any](b *strings.Builder, indent, name string, all []T, text func(T) string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "%s%s: [\n", indent, name)
	for _, one := range all {
		fmt.Fprintf(b, "%s  %s\n", indent, text(one))
	}
	fmt.Fprintf(b, "%s]\n", indent)
}

// String is the export, as a line of the file.
func (e Export) String() string {
	more := ""
	if e.Many != "" {
		more = fmt.Sprintf(", response_type: stream, response_threshold: %q", e.Many)
	}
	return fmt.Sprintf("{%s: %q%s, accounts: [%s]}", sort(e.Service), e.Subject, more, strings.Join(e.To, ", "))
}

// String is the import, as a line of the file.
func (i Import) String() string {
	more := ""
	if i.To != "" {
		more = fmt.Sprintf(", to: %q", i.To)
	}
	if i.Prefix != "" {
		more = fmt.Sprintf(", prefix: %q", i.Prefix)
	}
	return fmt.Sprintf("{%s: {account: %s, subject: %q}%s}", sort(i.Service), i.From, i.Subject, more)
}

func sort(service bool) string {
	if service {
		return "service"
	}
	return "stream"
}

// String is the user, as lines of the file.
func (u User) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n        user: %s, password: $%s\n", u.Name, PasswordOf(u.Name))
	if len(u.Publish)+len(u.Subscribe) > 0 {
		b.WriteString("        permissions: {\n          publish: {\n")
		list(&b, "            ", "allow", u.Publish, strconv.Quote)
		list(&b, "            ", "deny", u.Never, strconv.Quote)
		b.WriteString("          }\n          subscribe: {\n")
		list(&b, "            ", "allow", u.Subscribe, strconv.Quote)
		b.WriteString("          }\n")
		if u.AnswersWhatItHears {
			b.WriteString("          allow_responses: true\n")
		}
		b.WriteString("        }\n")
	}
	b.WriteString("      }")
	return b.String()
}
