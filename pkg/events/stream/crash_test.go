package stream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// crashVariable makes the test binary a server with the options that it holds, so
// that a test can kill one.
const crashVariable = "MILLRACE_TEST_SERVE"

func TestMain(m *testing.M) {
	if options := os.Getenv(crashVariable); options != "" {
		if err := serveUntilKilled(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := givePasswords(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveUntilKilled also ends when the test does, which closes standard input.
func serveUntilKilled(text string) error {
	var options embedded.Options
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		return err
	}
	s, err := embedded.Serve(options)
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

// mortal is a server in a process of its own.
type mortal struct {
	url    string
	kill   func()
	signal func(os.Signal)
}

func serveMortal(t *testing.T, options embedded.Options) mortal {
	t.Helper()
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), crashVariable+"="+string(text))
	command.Stderr = os.Stderr
	if _, err := command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		cancel() // SIGKILL
		_ = command.Wait()
	}
	t.Cleanup(kill)
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server's address: %v", err)
	}
	signal := func(s os.Signal) {
		if err := command.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	return mortal{strings.TrimSpace(url), kill, signal}
}

// TestLogsGoOnAfterCrash: a server that was killed serves when it has restored every stream, in
// whatever order: none seems to be missing or to be shorter. The log of pods is long and its
// index was never written, so that the server restores it last.
func TestLogsGoOnAfterCrash(t *testing.T) {
	dir := t.TempDir()
	server := serveMortal(t, embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: server.url})
	for _, k := range manyKinds() {
		if err := b.EnsureKind(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	const filled, rounds = 40_000, 3
	fillLog(t, b, filled)
	for round := range rounds {
		server.kill()
		_ = b.Close()
		began := time.Now()
		server = serveMortal(t, embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
		t.Logf("served after %v", time.Since(began))
		b = connect(t, stream.Options{URL: server.url})
		for _, k := range manyKinds() {
			want := map[kinds.Name]uint64{kinds.Pods.Name: uint64(filled + round)}[k.Name]
			// The server writes each message before it acknowledges it, and only the disk may be behind.
			if s, err := b.StreamState(t.Context(), subject.LogStream(k.Name)); err != nil || s.Last != want || s.Messages != want {
				t.Errorf("the log of %s has %d messages up to %d, want %d (%v)", k.Name, s.Messages, s.Last, want, err)
			}
		}
		if _, err := publish(t.Context(), b, 1_000_000+round, 1); err != nil {
			t.Fatal(err)
		}
	}
	m, there, err := b.Last(t.Context(), subject.LogStream("pods"), podDelta("pod-3", 0).Subject)
	if err != nil || !there || m.Sequence < filled-filledPods {
		t.Errorf("the last message of a pod is %d: %t, %v", m.Sequence, there, err)
	}
}

// filledPods is the number of pods in the deltas of fillLog.
const filledPods = 10

// manyKinds are pods and as many others as a cluster has.
func manyKinds() []kinds.Kind {
	many := []kinds.Kind{kinds.Pods.Kind}
	for i := range 59 {
		many = append(many, kinds.Kind{Name: kinds.Name(fmt.Sprintf("things%02d.example.com", i)), Version: "v1", Kind: "Thing", Form: kinds.Metadata})
	}
	return many
}

// fillLog appends n deltas of few pods, which do not compress.
func fillLog(t *testing.T, b *stream.Bus, n int) {
	t.Helper()
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	random := rand.NewChaCha8([32]byte{})
	for i := range n {
		m := podDelta(fmt.Sprint("pod-", i%filledPods), i)
		m.Data = make([]byte, 2048)
		_, _ = random.Read(m.Data)
		if err := a.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}
