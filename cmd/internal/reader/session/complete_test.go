package session

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// begun is an archive that notes from which message on a log is read.
type begun struct {
	*memory.Bus
	from uint64
}

func (b *begun) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	b.from = p.From
	return b.Bus.Read(ctx, p, handle)
}

// TestNamesAreCompletedFromTheLog: the names are those of the existing objects of the namespace, read
// from the message since which each of them has been recorded.
func TestNamesAreCompletedFromTheLog(t *testing.T) {
	t.Parallel()
	b := &begun{Bus: memory.New(memory.Options{})}
	defer b.Close()
	log, err := recordtest.New(t.Context(), b, []kinds.Kind{kinds.Pods.Kind, kinds.Nodes.Kind}, nil)
	readertest.Must(t, err)
	say := func(namespace, name string, op events.Op) {
		t.Helper()
		d, err := log.Write(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, "x")
		readertest.Must(t, err)
		d.Op = op
		_, err = log.Say(t.Context(), d)
		readertest.Must(t, err)
	}
	node, err := log.Write(kinds.Nodes.Kind, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, "x")
	readertest.Must(t, err)
	_, err = log.Say(t.Context(), node)
	readertest.Must(t, err)
	say("shop", "web-1", events.Is)
	say("shop", "web-2", events.Is)
	say("feat", "web-3", events.Is)
	offers := func(want string, from uint64, word string, args ...string) {
		t.Helper()
		s := &Session{Options: Options{Namespace: "shop"}, Bus: b}
		if got := strings.Join(s.completeObject(args, word), " "); got != want || b.from != from {
			t.Errorf("%v %q: it offers %q, read from message %d on; want %q from %d", args, word, got, b.from, want, from)
		}
	}
	offers("web-1 web-2", 1, "", "pods")
	say("shop", "web-1", events.Gone)
	say("shop", "web-2", events.Is)
	say("feat", "web-3", events.Is)
	_, err = log.Say(t.Context(), events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "900", Since: 5})
	readertest.Must(t, err)
	offers("web-2", 5, "", "pods")
	offers("pods/web-2", 5, "pods/")
	offers("node-1", 1, "", "no")
	offers("", 1, "", "nonsense")
	offers("", 1, "", "pods/web-2")
}
