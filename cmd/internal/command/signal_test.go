package command

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the program that TestASecondSignalEnds starts.
func TestMain(m *testing.M) {
	if os.Getenv("MILLRACE_TEST_STUBBORN") != "" {
		ctx, stop := signalled()
		defer stop()
		_, _ = os.Stdout.WriteString("ready")
		<-ctx.Done()
		_, _ = os.Stdout.WriteString("first")
		select {} // what should end does not
	}
	os.Exit(m.Run())
}

// TestASecondSignalEnds: a second signal ends a process that does not end after the first.
func TestASecondSignalEnds(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MILLRACE_TEST_STUBBORN=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	for _, want := range []string{"ready", "first"} {
		said := make([]byte, len(want))
		if n, err := out.Read(said); err != nil || string(said[:n]) != want {
			t.Fatalf("it says %q, not %q (%v)", said, want, err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	again := time.NewTicker(50 * time.Millisecond) // the second may come before the first has been taken note of
	defer again.Stop()
	ended := make(chan struct{})
	go func() { _, _ = cmd.Process.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			if !deadline.Stop() {
				t.Error("it did not end until it was killed")
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}
