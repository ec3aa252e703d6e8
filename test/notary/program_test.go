package notary

import (
	"bytes"
	"context"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/test/ui/program"
)

// engine is a directory in which the test runs the program, beside a bus with a record.
type engine struct {
	*testing.T
	dir, binary, url string
	bus              *stream.Bus
	keys             sign.Provided
	server           *embedded.Server
}

func newEngine(t *testing.T) *engine {
	d := &engine{T: t, dir: t.TempDir()}
	var err error
	d.binary, err = program.Build(d.dir)
	must(t, err)
	d.server, err = embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	must(t, err)
	t.Cleanup(func() { _ = d.server.Close() })
	d.url = d.server.URL()
	d.bus, err = stream.Connect(t.Context(), stream.Options{Server: d.server})
	must(t, err)
	t.Cleanup(func() { _ = d.bus.Close() })
	d.keys, err = sign.ProvideFrom(filepath.Join(d.dir, "signing"), time.Now().Add(-time.Hour))
	must(t, err)
	must(t, errors.Join(d.bus.EnsureKind(t.Context(), kinds.Pods.Kind), d.bus.EnsureController(t.Context(), "job-controller")))
	d.live(40)
	return d
}

// live stores n pods, with a signed turn and a signed outcome for each.
func (d *engine) live(n int) {
	d.Helper()
	turns, err := sign.SignerFile(d.keys.Turns.Private, nil)
	must(d.T, err)
	outcomes, err := sign.SignerFile(d.keys.Outcomes.Private, nil)
	must(d.T, err)
	a, err := d.bus.Append(d.Context(), kinds.Pods.Name)
	must(d.T, err)
	defer a.Close()
	var tally events.Tally
	var after events.Link
	for i := range n {
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "shop", Name: fmt.Sprint("pod-", i%10)}
		delta := events.Delta{
			Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "uid", ResourceVersion: fmt.Sprint(i + 1), Form: kinds.Full, ContentType: kinds.JSON,
			Body: fmt.Appendf(nil, `{"version":%d}`, i), At: time.Now(), After: after,
		}
		tally.Fold(delta)
		delta.Census = tally.Census()
		m := events.Seal(subject.Message(delta))
		must(d.T, errors.Join(a.Append(d.Context(), m), a.Flush(d.Context())))
		after = events.Link{Sequence: a.Last(), Sum: m.Get(events.HeaderSum)}

		key := events.Key{Namespace: "shop", Name: fmt.Sprint("job-", i)}
		turn, err := events.EncodeJSON(events.Turn{Controller: "job-controller", Lane: events.LaneWrite, Key: key, Because: "it is time", Now: time.Now()}, events.Trace{})
		must(d.T, err)
		turn.Subject = subject.Turn("job-controller", events.LaneWrite, key)
		turns.Turn(turn, 0, time.Now())
		_, err = d.bus.Store(d.Context(), turn, 0)
		must(d.T, err)
		outcome, err := events.EncodeJSON(events.Outcome{Controller: "job-controller", Lane: events.LaneWrite, Key: key, Turn: uint64(i + 1), At: time.Now()}, events.Trace{})
		must(d.T, err)
		outcome.Subject = subject.Outcome("job-controller", events.LaneWrite, key)
		id := fmt.Sprint("outcome-", i)
		outcomes.Outcome(outcome, id, time.Now())
		_, err = d.bus.Put(d.Context(), outcome, id)
		must(d.T, err)
	}
}

func (d *engine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.Context(), d.binary, args...)
	cmd.Dir, cmd.Cancel = d.dir, func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "MILLRACE_NATS_URL="+d.url, "MILLRACE_HEALTH_ADDRESS=127.0.0.1:0")
	return cmd
}

// run runs the program, and returns its output and exit code.
func (d *engine) run(args ...string) (said string, code int) {
	d.Helper()
	out, err := d.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// start runs the program until the test calls stop, or ends.
func (d *engine) start(args ...string) (stop func()) {
	d.Helper()
	cmd := d.command(args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must(d.T, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			d.Errorf("%v: %v\n%s", args, err, said.String())
		}
	}
	d.Cleanup(stop)
	return stop
}

// signed waits until the notary has signed everything.
func (d *engine) signed() (said string) {
	d.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		said, code := d.run("verify", "--key=notary.key.pub")
		if code == 0 && regexp.MustCompile(`(?m)^\d+ messages are exactly those that were signed$`).MatchString(said) {
			return said
		}
		if time.Now().After(deadline) {
			d.Fatalf("not everything is signed (exit code %d):\n%s", code, said)
		}
	}
}

// tampered copies a file, and changes the messages of one stream.
func (d *engine) tampered(from, to, stream string, change func([]events.Message) []events.Message) {
	d.Helper()
	f, err := archive.Open(filepath.Join(d.dir, from))
	must(d.T, err)
	defer f.Close()
	out, err := os.Create(filepath.Join(d.dir, to))
	must(d.T, err)
	defer out.Close()
	w, err := archive.NewWriter(out, f.About())
	must(d.T, err)
	for _, s := range f.Streams() {
		var all []events.Message
		must(d.T, f.Read(d.Context(), bus.Passage{Stream: s.Name}, func(batch []events.Message) error {
			all = append(all, batch...)
			return nil
		}))
		if s.Name == stream {
			all = change(all)
		}
		must(d.T, w.Begin(s))
		for _, m := range all {
			must(d.T, w.Add(m))
		}
	}
	must(d.T, w.Close())
}

// page reads docs/verify.md, in which a code block has commands, and the next one their output.
func page(t *testing.T) (commands [][]string, says []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "verify.md"))
	must(t, err)
	parts := strings.Split(string(text), "```\n")
	for line := range strings.Lines(parts[1]) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  ") // an explanation follows
		commands = append(commands, strings.Fields(strings.TrimPrefix(line, "millrace ")))
	}
	says = strings.Split(strings.TrimSpace(parts[3]), "\n")
	return commands, says
}

// shape is a line of the answer without its numbers and times, and with single spaces.
func shape(line string) string {
	line = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+`).ReplaceAllString(line, "TIME")
	return strings.Join(strings.Fields(regexp.MustCompile(`\d+`).ReplaceAllString(line, "N")), " ")
}

// TestThePageIsTrue: the commands of docs/verify.md do what the page says, and for a file that a user has
// changed the program prints the page's output.
func TestThePageIsTrue(t *testing.T) {
	d := newEngine(t)
	commands, says := page(t)
	if len(commands) < 5 || commands[1][0] != "notary" || says[0] != "$ millrace "+strings.Join(commands[4], " ") {
		t.Fatalf("docs/verify.md has other commands: %q, %q", commands, says)
	}
	for i, args := range commands {
		if args[0] == "notary" && args[1] != "keys" {
			at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--nats-url") })
			args[at] = "--nats-url=" + d.url
			stop := d.start(args...)
			d.signed()
			defer stop()
			continue
		}
		if said, code := d.run(args...); code != 0 {
			t.Fatalf("command %d, %v, ends with %d:\n%s", i, args, code, said)
		}
	}
	d.tampered("incident.millrace", "changed.millrace", "EV_pods", func(all []events.Message) []events.Message {
		all[30].Data = bytes.ToUpper(all[30].Data)
		return all
	})
	said, code := d.run("verify", "--key=notary.key.pub", "--record=changed.millrace")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	have := map[string]bool{}
	for line := range strings.Lines(said) {
		have[shape(line)] = true
	}
	for _, line := range says[1:] {
		if !have[shape(line)] {
			t.Errorf("docs/verify.md shows\n%s\nand the answer has no such line:\n%s", line, said)
		}
	}
}

// TestTheExitCodeOfVerify: the exit code separates an intact record, a damaged one, and one that could not be
// read, on the bus and in a file.
func TestTheExitCodeOfVerify(t *testing.T) {
	d := newEngine(t)
	for _, name := range []string{"notary.key", "other.key"} {
		if said, code := d.run("notary", "keys", "notary.test", name); code != 0 {
			t.Fatal(said)
		}
	}
	stop := d.start("notary", "--notary-key=notary.key")
	d.signed()
	stop()
	for _, args := range [][]string{{"export", "all.millrace"}, {"export", "pods.millrace", "--kinds=pods", "--controllers=job"}, {"export", "few.millrace", "--record=all.millrace", "--kinds=pods", "--since=1s"}} {
		if said, code := d.run(args...); code != 0 {
			t.Fatalf("%v: %s", args, said)
		}
	}
	forged := func(m events.Message) events.Message {
		m.Data = bytes.Replace(m.Data, []byte("it is time"), []byte("it is late"), 1)
		delete(m.Header, events.HeaderSum)
		delete(m.Header, events.HeaderBodySum)
		return events.Seal(m)
	}
	d.tampered("all.millrace", "forged.millrace", "TURN_job-controller", func(all []events.Message) []events.Message {
		all[3] = forged(all[3])
		return all
	})
	d.tampered("all.millrace", "without.millrace", subject.NotaryStream, func([]events.Message) []events.Message { return nil })
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd} // of a zstd frame
	d.damaged("all.millrace", "damaged.millrace", func(text []byte) []byte {
		text[4+bytes.Index(text[4:], magic)+40] ^= 1 // of the second frame, which is the first block
		return text
	})
	d.damaged("all.millrace", "pages.millrace", func(text []byte) []byte {
		at := len(text)
		for range 3 { // behind the last block, with the pages, come the list of its subjects and the index
			at = bytes.LastIndex(text[:at], magic)
		}
		text[at+40] ^= 1
		return text
	})
	d.damaged("all.millrace", "short.millrace", func(text []byte) []byte { return text[:len(text)-20] })
	key, signing := "--key=notary.key.pub", []string{"--turn-keys-file=" + d.keys.Turns.Public, "--outcome-keys-file=" + d.keys.Outcomes.Public}
	swapped := []string{"--turn-keys-file=" + d.keys.Outcomes.Public}
	cases := []struct {
		what string
		args []string
		code int
		says string
	}{
		{"a bus that is whole", []string{key}, 0, "exactly those that were signed"},
		{"a bus without a key", nil, 0, "nothing is wrong with"},
		{"a file that is whole", []string{key, "--record=all.millrace"}, 0, "exactly those that were signed"},
		{"a part that says so", []string{key, "--record=pods.millrace"}, 0, "the file says that it is a part of the record: kinds=pods controllers=job-controller"},
		{"a stretch of a part", []string{key, "--record=few.millrace"}, 0, " kinds=pods"},
		{"who signed, in a file", append([]string{key, "--record=all.millrace"}, signing...), 0, "of the turns 40 bear a signature that counts, 0 are older than the first key, and 0 bear none"},
		{"who signed, on the bus", append([]string{key}, signing...), 0, "of the outcomes 40 bear a signature that counts"},
		{"a forged turn in a file", []string{key, "--record=forged.millrace"}, 2, "TURN_job-controller 4: the message is not the one that was signed"},
		{"a forged turn in a file, without the notary", append([]string{"--record=forged.millrace"}, signing...), 2, "of the turns 39 bear a signature that counts, 0 are older than the first key, and 1 bear none"},
		{"turns of another signer", append([]string{key, "--record=all.millrace"}, swapped...), 2, "TURN_job-controller 1: "},
		{"another notary's key", []string{"--key=other.key.pub"}, 2, "no known key has signed it"},
		{"another notary's key, for a file", []string{"--key=other.key.pub", "--record=all.millrace"}, 2, "no known key has signed it"},
		{"a file without pages", []string{key, "--record=without.millrace"}, 2, "there is no page that could be trusted"},
		{"a file with a damaged block", []string{key, "--record=damaged.millrace"}, 2, "cannot be read from here on"},
		{"a file with damaged pages", []string{key, "--record=pages.millrace"}, 2, "the pages cannot be read"},
		{"a file without its end", []string{key, "--record=short.millrace"}, 1, "is cut off or damaged at its end"},
		{"no file", []string{key, "--record=absent.millrace"}, 1, "open the record"},
		{"no key file", []string{"--key=absent.pub"}, 1, "read --key"},
		{"no bus", []string{key, "--nats-url=nats://127.0.0.1:1"}, 1, "no bus answers"},
		{"a flag that is none", []string{"--keys=notary.key.pub"}, 1, "--keys"},
	}
	for _, c := range cases {
		if said, code := d.run(append([]string{"verify"}, c.args...)...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, want %d, and %q in\n%s", c.what, code, c.code, c.says, said)
		}
	}
	d.removed(key)
}

// removed deletes streams from the bus: first a log, then the notary's stream.
func (d *engine) removed(key string) {
	d.Helper()
	must(d.T, d.bus.DeleteKind(d.Context(), kinds.Pods.Name))
	if said, code := d.run("verify", key); code != 2 || !strings.Contains(said, "EV_pods: the stream is left out") {
		d.Errorf("without a log that was signed: exit code %d\n%s", code, said)
	}
	if said, code := d.run("verify", key, "--partial"); code != 2 || !strings.Contains(said, "there are pages about it") {
		d.Errorf("and with --partial, since there are pages: exit code %d\n%s", code, said)
	}
	d.delete(subject.NotaryStream)
	said, code := d.run("verify", key)
	if code != 2 || !strings.Contains(said, "there is no page that could be trusted") {
		d.Errorf("without the notary's stream: exit code %d\n%s", code, said)
	}
}

func (d *engine) damaged(from, to string, change func([]byte) []byte) {
	d.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, from))
	must(d.T, err)
	must(d.T, os.WriteFile(filepath.Join(d.dir, to), change(text), 0o600))
}

// delete deletes a stream, as the bus's operator can.
func (d *engine) delete(name string) {
	d.Helper()
	conn, err := nats.Connect(d.url)
	must(d.T, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(d.T, err)
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	must(d.T, js.DeleteStream(ctx, name))
}
