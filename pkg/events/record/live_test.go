package record_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

func TestTailShowsWhatIsWanted(t *testing.T) {
	tell(t, func(w *world) {
		var mu sync.Mutex
		heard := map[string][]string{}
		ctx, stop := context.WithCancel(w.Context())
		for name, f := range map[string]record.Filter{
			"all": {}, "pods": {Kinds: []kinds.Name{"pods"}}, "sets": {Controllers: []string{replicaSets}}, "elsewhere": {Namespace: "elsewhere"},
		} {
			go func() {
				if err := w.record.Tail(ctx, f, func(h record.Happening) error {
					mu.Lock()
					defer mu.Unlock()
					heard[name] = append(heard[name], h.Noun)
					return nil
				}); err != nil {
					w.Errorf("tail of %s: %v", name, err)
				}
			}()
		}
		synctest.Wait()
		w.Scaled()
		synctest.Wait()
		stop()
		synctest.Wait()
		for name, want := range map[string]string{
			"all": "delta delta delta delta delta delta outcome outcome outcome turn turn turn", "pods": "delta delta", "sets": "outcome turn", "elsewhere": "",
		} {
			slices.Sort(heard[name])
			if got := strings.Join(heard[name], " "); got != want {
				w.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if err := w.record.Tail(w.Context(), record.Filter{Controllers: []string{"absent"}}, nil); !errors.Is(err, record.ErrNotThere) {
			w.Errorf("the tail of an absent controller: %v, want ErrNotThere", err)
		}
	})
}
