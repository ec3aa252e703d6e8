package stream_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The matrix is what each user can do on a real server, measured: what it says that is
// stored or answered, what it hears and of whom, and what is stored when it asks for an
// answer on another one's subject. Golden is in testdata.
const golden = "testdata/matrix.txt"

var update = flag.Bool("update", false, "write "+golden+" anew")

// unanswered is how long nothing may come of a question that was not refused.
const unanswered = 250 * time.Millisecond

// measured are the controllers: of the first two the writer of workloads has the share, of
// the third that of collectors, and of none that of credentials, who is not there.
var measured = []string{"c", "d", "namespace-controller"}

// identities are the users that are measured: all but the one who may do everything.
var identities = slices.DeleteFunc(slices.Clone(access.Users[1:]), func(user string) bool { return user == access.WriterCredentials })

// attacks are what no service asks for in daily work, besides what the file names.
var attacks = []string{
	"ev.pods._mark", "ev.pods.1.ns.x", "turn.c.act.1._._.x", "turn.d.act.1._._.x", "outcome.c.act.1._._.x", "outcome.d.act.1._._.x", "outcome.namespace-controller.act.1._._.x",
	"sched.c.1._._.x", "wake.c.1._._.x", "shadow.c.act.1._._.x", "notary.EV_pods", "status.reconcilers", "status.watchers",
	"peer.watchers", "peer.watched", "peer.epoch", "peer.writers", "peer.writes", "peer.damage", "peer.reconcilers", "peer.heard.x", "peer.other",
	"$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$JS.FC.TURN_c.x", "$JS.SNAPSHOT.ACK.TURN_c.x",
	"_INBOX.other.x", "_INBOX_writer.x", "_R_.x", "$JS.ACK.TURN_c.writer.1.1.1.1.0", "$JS.ACK.TURN_d.writer.1.1.1.1.0", "$JS.ACK.TURN_namespace-controller.writer.1.1.1.1.0", "$JS.ACK.EV_pods.reading.1.1.1.1.0", access.Many + ".TURN_c",
	"provision.watcher.forget", "provision.reconcilers.consumer", "provision.writer.consumer", "provision.writer-workloads.consumer", "provision.notary.notary",
}

// calls are of JetStream's API, asked under each name that it has.
var calls = []string{
	"INFO", "STREAM.CREATE.X", "STREAM.CREATE.TURN_c", "STREAM.UPDATE.EV_pods", "STREAM.UPDATE.OUTCOME_c", "STREAM.UPDATE.NOTARY",
	"STREAM.DELETE.EV_pods", "STREAM.DELETE.TURN_c", "STREAM.DELETE.OUTCOME_c", "STREAM.DELETE.NOTARY", "STREAM.DELETE.WAKE",
	"STREAM.PURGE.TURN_c", "STREAM.PURGE.EV_pods", "STREAM.SNAPSHOT.TURN_c", "STREAM.RESTORE.Y", "STREAM.MSG.DELETE.TURN_c",
	"STREAM.MSG.GET.TURN_c", "STREAM.LEADER.STEPDOWN.EV_pods", "STREAM.PEER.REMOVE.TURN_c", "DIRECT.GET.TURN_c", "DIRECT.GET.TURN_c.turn.c.x",
	"CONSUMER.CREATE.TURN_c", "CONSUMER.CREATE.TURN_c.z", "CONSUMER.DURABLE.CREATE.TURN_c.z", "CONSUMER.DELETE.TURN_c.writer", "CONSUMER.NAMES.TURN_c",
	"CONSUMER.PAUSE.TURN_c.writer", "CONSUMER.RESET.TURN_c.writer", "CONSUMER.UNPIN.TURN_c.writer", "CONSUMER.MSG.NEXT.TURN_c.writer", "CONSUMER.MSG.NEXT.TURN_d.writer", "CONSUMER.MSG.NEXT.TURN_namespace-controller.writer", "CONSUMER.LIST.EV_pods", "CONSUMER.MSG.NEXT.EV_pods.reading",
	"SERVER.REMOVE", "ACCOUNT.PURGE.MILLRACE", "META.LEADER.STEPDOWN", "ACCOUNT.STREAM.MOVE.MILLRACE.TURN_c",
}

// bench is a server with the accounts of a file.
type bench struct {
	*testing.T
	all     *stream.Bus
	visitor map[string]*visitor
}

// visitor is the plain connection of a user.
type visitor struct {
	conn  *nats.Conn
	inbox chan *nats.Msg
}

// newBench starts the server. An error is that of the file, or of streams that could not
// be made.
func newBench(t *testing.T, f access.File) (*bench, error) {
	t.Helper()
	s, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: accountsOf(t, f)})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() })
	b := &bench{T: t, all: connect(t, stream.Options{URL: as("millrace", s.URL())}), visitor: map[string]*visitor{}}
	ctx := t.Context()
	err = errors.Join(b.all.EnsureKind(ctx, kinds.Pods.Kind), b.all.EnsureController(ctx, "c"), b.all.EnsureController(ctx, "d"), b.all.EnsureController(ctx, "namespace-controller"), b.all.EnsureShadow(ctx, "c"), b.all.EnsureNotary(ctx, 0))
	if err == nil {
		_, err = publish(ctx, b.all, 0, 3)
	}
	for _, w := range []bus.Work{
		{Stream: subject.TurnStream("c"), Durable: "writer"}, {Stream: subject.TurnStream("d"), Durable: "writer"},
		{Stream: subject.TurnStream("namespace-controller"), Durable: "writer"},
		{Stream: subject.LogStream("pods"), Durable: "reading"},
	} {
		err = errors.Join(err, b.employ(w))
	}
	if err != nil {
		return nil, err
	}
	provider := connect(t, stream.Options{URL: as("provisioner", s.URL())})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- provider.Provide(ctx, measured) }()
	t.Cleanup(func() { stop(); <-ended })
	for _, user := range append(slices.Clone(identities), access.All) {
		if b.visitor[user], err = b.visit(user, s.URL()); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// employ makes a durable consumer.
func (b *bench) employ(w bus.Work) error {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if all, err := b.all.Consumers(ctx, w.Stream); err == nil && slices.ContainsFunc(all, func(c bus.Consumer) bool { return c.Name == w.Durable }) {
				stop()
			}
		}
	}()
	return b.all.Work(ctx, w, func(bus.Delivery) {})
}

func (b *bench) visit(user, address string) (*visitor, error) {
	v := &visitor{inbox: make(chan *nats.Msg, 256)}
	var err error
	v.conn, err = nats.Connect(as(user, address), nats.CustomInboxPrefix(access.Inbox(user)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, err
	}
	b.Cleanup(v.conn.Close)
	if _, err := v.conn.ChanSubscribe(access.Inbox(user)+".>", v.inbox); err != nil {
		return nil, err
	}
	return v, v.conn.Flush()
}

// says publishes and reports whether that was answered, as what is stored is.
func (v *visitor) says(on string) bool {
	inbox := v.conn.NewInbox()
	if v.conn.PublishRequest(on, inbox, []byte(`{}`)) != nil || v.conn.Flush() != nil || v.refused(on) {
		return false
	}
	timer := time.NewTimer(unanswered)
	defer timer.Stop()
	for {
		select {
		case m := <-v.inbox:
			if m.Subject == inbox {
				return m.Header.Get("Status") != "503"
			}
		case <-timer.C:
			return false
		}
	}
}

// refused reports whether the server's last refusal was about a subject.
func (v *visitor) refused(on string) bool {
	err := v.conn.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), fmt.Sprintf("%q", on))
}

// hears tells of whom a user hears something on a subject.
func (b *bench) hears(user, on string) (of []string) {
	v := b.visitor[user]
	heard := make(chan *nats.Msg, 64)
	sub, err := v.conn.ChanSubscribe(on, heard)
	if err != nil || v.conn.Flush() != nil {
		return nil
	}
	defer func() { _ = sub.Unsubscribe() }()
	if v.refused(on) {
		return nil
	}
	said := strings.TrimPrefix(on, access.Heard+".")
	for _, speaker := range append(slices.Clone(identities), access.All) {
		tell := b.visitor[speaker].conn
		if tell.Publish(said, []byte(speaker)) != nil || tell.Flush() != nil || v.conn.Flush() != nil {
			continue
		}
		select {
		case m := <-heard:
			of = append(of, string(m.Data))
		default: // it would have come before the answer to the flush
		}
	}
	if of == nil {
		of = []string{"none"}
	}
	return of
}

// stands is where each stream stands.
func (b *bench) stands() map[string]string {
	b.Helper()
	at := map[string]string{}
	for _, name := range []string{"EV_pods", "TURN_c", "TURN_d", "OUTCOME_c", "OUTCOME_d", "OUTCOME_namespace-controller", "SHADOW_c", "WAKE", "STATUS", "NOTARY"} {
		s, err := b.all.StreamState(b.Context(), name)
		consumers, listing := b.all.Consumers(b.Context(), name)
		at[name] = fmt.Sprintln(s.First, s.Last, s.Messages, s.Created, s.Keeps, len(consumers), err, listing)
	}
	return at
}

// settle waits until what was said has been stored or refused. A stream takes messages in the
// order in which they came, so that one which is answered is behind them.
func (b *bench) settle() {
	b.Helper()
	for _, on := range []string{
		"ev.pods._mark", "turn.c.act.1._._.x", "turn.d.act.1._._.x", "outcome.c.act.1._._.x", "outcome.d.act.1._._.x",
		"outcome.namespace-controller.act.1._._.x", "shadow.c.x", "sched.d.1._._.x", "status.watchers", "notary.EV_pods",
	} {
		if !b.visitor[access.All].says(on) {
			b.Errorf("no stream answers what is stored on %s", on)
		}
	}
}

// changed are the streams that do not stand where they stood.
func (b *bench) changed(before map[string]string) string {
	b.Helper()
	var names []string
	for name, at := range b.stands() {
		if before[name] != at {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, ", "), "none")
}

// diverts asks everything that a user may ask, for answers on subjects that are stored,
// and tells in which streams something was stored.
func (b *bench) diverts(user string, questions []string) string {
	v, before := b.visitor[user], b.stands()
	for _, question := range questions {
		for _, to := range []string{"turn.d.act.1._._.x", "outcome.d.act.1._._.x", "outcome.namespace-controller.act.1._._.x", "ev.pods._mark", "sched.d.1._._.x", "notary.EV_pods", "status.watchers"} {
			if err := v.conn.PublishRequest(question, to, []byte(`{"seq":1}`)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := v.conn.Flush(); err != nil {
		b.Fatal(err)
	}
	for _, question := range questions { // those before have been answered by then
		v.says(question)
	}
	if user == access.Provisioner && b.changed(before) != "none" {
		return "those of others" // which of them so soon is chance
	}
	return b.changed(before)
}

// concrete is a subject that a pattern covers.
func concrete(pattern string) string {
	return strings.NewReplacer("*", "x", ">", "x").Replace(pattern)
}

// subjects are all that is tried: what the accounts name, and the attacks.
func subjects(f access.File) (says, hears []string) {
	says = slices.Clone(attacks)
	for _, call := range calls {
		for _, prefix := range []string{"$JS.API.", access.API + ".", access.GuestAPI + "."} {
			says = append(says, prefix+call)
		}
	}
	for _, a := range f.Accounts {
		for _, u := range a.Users {
			for _, pattern := range slices.Concat(u.Publish, u.Never) {
				says = append(says, concrete(pattern))
			}
			for _, pattern := range u.Subscribe {
				hears = append(hears, concrete(pattern))
			}
		}
	}
	for _, on := range append(slices.Clone(access.Published), "outcome.c.x", "outcome.namespace-controller.x") {
		hears = append(hears, access.Heard+"."+concrete(on), on)
	}
	hears = append(hears, "_INBOX.>", ">", "$JS.API.>", "$JS.EVENT.>", "$SYS.>", "turn.>", "notary.x")
	compact := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	return compact(says), compact(hears)
}

// column is what a user can do.
func (b *bench) column(user string, f access.File) []string {
	b.Helper()
	says, hears := subjects(f)
	var can, asks []string
	for _, on := range hears {
		if of := b.hears(user, on); of != nil {
			can = append(can, fmt.Sprintf("%s hears %s of %s", user, on, strings.Join(of, ", ")))
		}
	}
	b.settle() // what was said so that it was heard
	before := b.stands()
	for _, on := range says {
		answered := b.visitor[user].says(on)
		if strings.HasPrefix(on, "peer.") && !b.visitor[user].refused(on) {
			can = append(can, user+" tells "+on) // which nothing answers
		}
		if !answered {
			continue
		}
		can = append(can, user+" says "+on)
		if strings.HasPrefix(on, "millrace.") || strings.HasPrefix(on, "$JS.API.STREAM.INFO") {
			asks = append(asks, on)
		}
	}
	can = append(can, fmt.Sprintf("%s changes streams: %s", user, b.changed(before)))
	return append(can, fmt.Sprintf("%s diverts answers to streams: %s", user, b.diverts(user, asks)))
}

// TestMatrix: what each user can do on a real server is what is written down.
func TestMatrix(t *testing.T) {
	f := access.New(measured)
	var all []string
	for _, user := range identities {
		b, err := newBench(t, f) // the provisioner may remove what it finds
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b.column(user, f)...)
	}
	text := strings.Join(all, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range differ(strings.Split(string(want), "\n"), strings.Split(text, "\n")) {
		t.Error(line)
	}
}

// differ are the lines of two tables that are in one of them.
func differ(want, have []string) (lines []string) {
	for _, line := range want {
		if !slices.Contains(have, line) {
			lines = append(lines, "no more: "+line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			lines = append(lines, "new: "+line)
		}
	}
	return lines
}

// without is every file that lacks one rule, by what it lacks, and whom that concerns.
func without(f func() access.File) map[string]struct {
	file  access.File
	users []string
} {
	all := map[string]struct {
		file  access.File
		users []string
	}{}
	add := func(name string, users []string, take func(*access.File)) {
		less := f()
		take(&less)
		all[name] = struct {
			file  access.File
			users []string
		}{less, users}
	}
	userOf := map[string]string{}
	whole := f()
	for _, a := range whole.Accounts {
		userOf[a.Name] = a.Users[len(a.Users)-1].Name
	}
	for i, a := range whole.Accounts {
		for k, e := range a.Exports {
			for m, to := range e.To {
				add(fmt.Sprintf("%s exports %s to %s", a.Name, e.Subject, to), []string{userOf[to]}, func(f *access.File) {
					e := &f.Accounts[i].Exports[k]
					if e.To = slices.Delete(e.To, m, m+1); len(e.To) == 0 { // to no account would be to all
						f.Accounts[i].Exports = slices.Delete(f.Accounts[i].Exports, k, k+1)
					}
				})
			}
		}
		for k, im := range a.Imports {
			add(fmt.Sprintf("%s imports %s of %s as %s%s", a.Name, im.Subject, im.From, im.To, im.Prefix), []string{userOf[a.Name]}, func(f *access.File) {
				f.Accounts[i].Imports = slices.Delete(f.Accounts[i].Imports, k, k+1)
			})
		}
		for n, u := range a.Users {
			for list, of := range map[string]func(*access.User) *[]string{
				"may publish": func(u *access.User) *[]string { return &u.Publish }, "may never publish": func(u *access.User) *[]string { return &u.Never },
				"may hear": func(u *access.User) *[]string { return &u.Subscribe },
			} {
				for k, pattern := range *of(&u) {
					add(fmt.Sprintf("%s %s %s", u.Name, list, pattern), []string{u.Name}, func(f *access.File) {
						rules := of(&f.Accounts[i].Users[n])
						*rules = slices.Delete(*rules, k, k+1)
					})
				}
			}
			if u.AnswersWhatItHears {
				add(u.Name+" answers", []string{access.Watcher}, func(f *access.File) { f.Accounts[i].Users[n].AnswersWhatItHears = false })
			}
		}
	}
	return all
}

// TestEachRuleCounts: whatever rule is taken out of the accounts, the matrix is another one,
// or the server does not start.
func TestEachRuleCounts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	make := func() access.File { return access.New(measured) }
	less := without(make)
	for _, rule := range slices.Sorted(maps.Keys(less)) {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			b, err := newBench(t, less[rule].file)
			if err != nil {
				return
			}
			var have, before []string
			for _, user := range less[rule].users {
				have = append(have, b.column(user, make())...)
				before = append(before, slices.DeleteFunc(slices.Clone(want), func(line string) bool { return !strings.HasPrefix(line, user+" ") })...)
			}
			if len(differ(before, have)) == 0 {
				t.Errorf("without this rule the users may do the same as with it: %s", rule)
			}
		})
	}
}
