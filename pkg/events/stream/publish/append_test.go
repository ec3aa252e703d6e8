package publish

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/ingest"
)

// A mark is kept for at most an hour, and all else for as long as the log keeps messages.
func TestHowLongADeltaIsKept(t *testing.T) {
	t.Parallel()
	of := func(op events.Op) events.Message {
		return events.Message{Header: map[string][]string{events.HeaderOp: {string(op)}}}
	}
	for age, want := range map[time.Duration]map[events.Op]string{
		0:                {events.Gone: "", events.Mark: "3600s", events.Is: "", events.Gap: ""},
		30 * time.Minute: {events.Gone: "", events.Mark: "1800s", events.Is: ""},
		2 * time.Hour:    {events.Gone: "", events.Mark: "3600s", events.Is: ""},
	} {
		for op, want := range want {
			if got := (&appender{age: age}).lifetime(of(op)); got != want {
				t.Errorf("where a log is kept for %v, %s is kept for %q, want %q", age, op, got, want)
			}
		}
	}
}

// Bounds limit the messages and bytes in flight; the reason why the server stores no more takes
// precedence.
func TestWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	a := &appender{unconfirmed: make([]events.Message, 2), size: 30}
	for _, c := range []struct {
		messages, bytes int
		within          bool
	}{{2, 30, true}, {1, 30, false}, {2, 29, false}, {3, 31, true}} {
		if got, err := a.hasRoom(c.messages, c.bytes); got != c.within || err != nil {
			t.Errorf("two messages of 30 bytes are within %d and %d: %t, %v", c.messages, c.bytes, got, err)
		}
	}
	broken := errors.New("broken")
	a.batch = ingest.New("_INBOX", "id")
	if a.batch.Fail(broken); a.batch.Err() == nil {
		t.Fatal("the batch goes on")
	}
	if got, err := a.hasRoom(9, 99); got || !errors.Is(err, broken) {
		t.Errorf("a broken batch has room: %t, %v; want its error", got, err)
	}
}

// A server that does not answer is given up after one ping, and one that answers and confirms nothing after
// some more; each confirmed message gives it new time.
func TestAnswersWithoutProgressDoNotCount(t *testing.T) {
	t.Parallel()
	p := progress{left: 3}
	if p.answered(3) {
		t.Error("an answer that confirms nothing counts")
	}
	for range maxPings {
		if p.silent() {
			t.Fatalf("the wait is over before the server was pinged %d times, and it answers", maxPings)
		}
		if p.answered(3) {
			t.Fatal("the answer to a ping counts although it confirms nothing")
		}
	}
	if !p.silent() {
		t.Errorf("the wait goes on although the server was pinged %d times and confirmed nothing", maxPings)
	}
	p = progress{left: 3}
	p.silent()
	if !p.answered(2) || p.answered(2) {
		t.Error("the first answer that confirms a message must count, the same answer again must not")
	}
	if p.silent() || !p.silent() {
		t.Error("after progress the server must be pinged once more, and given up after that")
	}
}
