package delivery

import (
	"testing"
)

// Acks drops half of the reply subjects when they are many, and finds the newest that was dealt
// with.
func TestAnswersForMessages(t *testing.T) {
	t.Parallel()
	var a Acks
	if a.ReplyUpTo(7) != "" {
		t.Error("ReplyUpTo has a reply before any message")
	}
	for n := uint64(1); n <= 5; n++ {
		a.Add(n*10, string(rune('a'+n)))
	}
	for _, step := range []struct {
		to   uint64
		want string
	}{{9, ""}, {10, "b"}, {10, ""}, {35, "d"}, {50, "f"}, {99, ""}} {
		if got := a.ReplyUpTo(step.to); got != step.want {
			t.Errorf("up to %d the answer is %q, want %q", step.to, got, step.want)
		}
	}
	for n := range uint64(mostReplies) {
		if a.Add(n, "x"); len(a.replies) > mostReplies {
			t.Fatalf("%d answers are kept", len(a.replies))
		}
	}
	if len(a.replies) != mostReplies/2 || a.replies[0].sequence != 1 || a.replies[len(a.replies)-1].sequence != mostReplies-1 {
		t.Errorf("of %d replies %d are kept, from %d on; want half, the first and the last among them", mostReplies, len(a.replies), a.replies[0].sequence)
	}
	if a.Clear(); a.ReplyUpTo(1<<62) != "" {
		t.Error("ReplyUpTo has a reply after Clear")
	}
}
