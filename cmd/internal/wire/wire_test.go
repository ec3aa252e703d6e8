package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
)

const patience = 5 * time.Minute

// echo is a server that echoes all bytes.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return listener.Addr().String()
}

func lay(t *testing.T, target string) *Wire {
	t.Helper()
	w, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// carries waits until the wire has that many connections.
func (w *Wire) carries(t *testing.T, n int) {
	t.Helper()
	taken := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.links)
	}
	if !eventually.Within(patience, func() bool { return taken() >= n }) {
		t.Fatalf("%d connections were taken, want %d", taken(), n)
	}
}

func dial(t *testing.T, w *Wire) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say writes a text and returns what comes back in time.
func say(t *testing.T, c net.Conn, text string, within time.Duration) (string, error) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	return hear(t, c, len(text), within)
}

func hear(t *testing.T, c net.Conn, n int, within time.Duration) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(c, answer)
	return string(answer), err
}

func expectEcho(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := say(t, c, "hello", patience); got != "hello" || err != nil {
		t.Fatalf("heard %q, %v", got, err)
	}
}

func expectSilence(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard something, or the connection ended: %v", err)
	}
}

func TestCarriesInOrder(t *testing.T) {
	w := lay(t, echo(t))
	w.Set(Condition{Delay: 10 * time.Millisecond})
	c := dial(t, w)
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 3)
	}
	go func() { _, _ = c.Write(sent) }()
	got, err := hear(t, c, len(sent), patience)
	if err != nil || !bytes.Equal([]byte(got), sent) {
		t.Fatalf("%d bytes did not come back as they were: %v", len(sent), err)
	}
}

func TestCut(t *testing.T) {
	w := lay(t, echo(t))
	c := dial(t, w)
	expectEcho(t, c)
	w.Set(Condition{Cut: true})
	if _, err := hear(t, c, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection lives on a wire that is cut: %v", err)
	}
	if c, err := net.Dial("tcp", w.Address()); err == nil { // or it was reset at once
		if _, err := hear(t, c, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a wire that is cut was connected to: %v", err)
		}
		_ = c.Close()
	}
	w.Set(Condition{})
	expectEcho(t, dial(t, w))
}

func TestDeadConnectionsStayDead(t *testing.T) {
	w := lay(t, echo(t))
	before := dial(t, w)
	expectEcho(t, before)
	w.Set(Condition{Dead: true})
	during := dial(t, w)
	w.carries(t, 2) // it has come to the wire while that is dead
	_, err := say(t, during, "hello", 50*time.Millisecond)
	expectSilence(t, err)
	w.Set(Condition{})
	for _, c := range []net.Conn{before, during} {
		_, err := say(t, c, "hello", 50*time.Millisecond)
		expectSilence(t, err)
	}
	expectEcho(t, dial(t, w))
}

func TestStallLosesNothing(t *testing.T) {
	w := lay(t, echo(t))
	c := dial(t, w)
	w.Set(Condition{Stall: true})
	_, err := say(t, c, "hello", 50*time.Millisecond)
	expectSilence(t, err)
	w.Set(Condition{})
	if got, err := hear(t, c, 5, patience); got != "hello" {
		t.Fatalf("heard %q, %v", got, err)
	}
}

func TestSlowWires(t *testing.T) {
	for name, c := range map[string]Condition{
		"delay": {Delay: 50 * time.Millisecond}, // there and back
		"rate":  {Rate: 100},                    // five bytes, there and back
	} {
		t.Run(name, func(t *testing.T) {
			w := lay(t, echo(t))
			w.Set(c)
			begun := time.Now()
			expectEcho(t, dial(t, w))
			if took := time.Since(begun); took < 100*time.Millisecond {
				t.Errorf("there and back in %v, want at least 100 ms", took)
			}
		})
	}
}

// TestFarEndGone: a connected client notices that the target has closed the connection.
func TestFarEndGone(t *testing.T) {
	w := lay(t, "127.0.0.1:1") // no server listens there
	c, err := net.Dial("tcp", w.Address())
	if err == nil { // else it was reset before it was even told of the connection
		_, err = hear(t, c, 1, patience)
		_ = c.Close()
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("connected to no server: %v", err)
	}
}

// front is a front before a server that counts its requests.
func front(t *testing.T) (f *Front, client *http.Client, reached *atomic.Int64) {
	t.Helper()
	reached = &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(server.Close)
	f, err := NewFront(server.URL, server.Client().Transport, server.TLS.Certificates[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	// One connection for each request, because the client silently retries on a reused one.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	return f, &http.Client{Transport: transport, Timeout: patience}, reached
}

func TestFrontPasses(t *testing.T) {
	f, client, _ := front(t)
	response, err := client.Get("https://" + f.Address() + "/api/v1/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); string(text) != "/api/v1/pods" {
		t.Errorf("the answer is %q", text)
	}
}

func TestFrontRefuses(t *testing.T) {
	f, client, reached := front(t)
	f.Set(Trouble{Every: 2, Code: http.StatusTooManyRequests, RetryAfter: 3})
	var codes []int
	for range 4 {
		response, err := client.Get("https://" + f.Address() + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		codes = append(codes, response.StatusCode)
		if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "3" {
			t.Errorf("the refusal has the header %v", response.Header)
		}
	}
	if codes[0] != 200 || codes[1] != 429 || codes[2] != 200 || codes[3] != 429 || reached.Load() != 2 {
		t.Errorf("answers %v, and %d requests passed", codes, reached.Load())
	}
	watch, err := client.Get("https://" + f.Address() + "/?watch=true")
	if err != nil || watch.StatusCode != 200 || f.Met() != 2 {
		t.Errorf("a watch was met by trouble: %v", err)
	}
}

// TestFrontLoses: the request has its effect, and the client gets no response.
func TestFrontLoses(t *testing.T) {
	f, client, reached := front(t)
	f.Set(Trouble{Every: 1, Lose: true})
	if response, err := client.Post("https://"+f.Address()+"/", "text/plain", nil); err == nil {
		t.Errorf("answered with %d", response.StatusCode)
	}
	if reached.Load() != 1 || f.Met() != 1 {
		t.Errorf("%d requests reached the server, and %d were met", reached.Load(), f.Met())
	}
}
