package session

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// completePatience is how long a shell waits for a completion.
const completePatience = 2 * time.Second

// complete offers completions from the record, or none if the bus does not answer, because a
// shell shows no errors while a user types.
func (o *Options) complete(cmd *cobra.Command, file string, offer func(*Session)) {
	if settings.Fill(cmd.Flags(), file, os.LookupEnv) != nil {
		return
	}
	o.Timeout = completePatience
	_ = o.with(cmd.Context(), io.Discard, io.Discard, func(_ context.Context, s *Session) error {
		offer(s)
		return nil
	})
}

// completeObject offers kinds, and then names, written KIND/NAME or KIND NAME.
func (s *Session) completeObject(args []string, word string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completePatience)
	defer cancel()
	have, err := s.Kinds(ctx)
	if err != nil || len(args) > 1 {
		return nil
	}
	kind, _, slash := strings.Cut(word, "/")
	switch {
	case len(args) == 1 && strings.Contains(args[0], "/"):
		return nil
	case len(args) == 1:
		return s.completeNames(ctx, args[0], "", have)
	case slash:
		return s.completeNames(ctx, kind, kind+"/", have)
	default:
		return resolve.Completions(have)
	}
}

func (s *Session) completeNames(ctx context.Context, word, prefix string, have []kinds.Kind) []string {
	kind, err := resolve.Kind(word, have)
	if err != nil {
		return nil
	}
	names, err := s.names(ctx, kind)
	if err != nil {
		return nil
	}
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// names are the names of the existing objects of a kind, sorted.
func (s *Session) names(ctx context.Context, kind kinds.Kind) ([]string, error) {
	namespace := ""
	if kind.Namespaced {
		namespace = s.Namespace
	}
	there := map[string]bool{}
	since, err := bus.RecordedSince(ctx, s.Bus, kind.Name)
	if err != nil {
		return nil, err
	}
	passage := bus.Passage{Stream: subject.LogStream(kind.Name), Subject: subject.DeltasIn(kind.Name, namespace), From: since, HeadersOnly: true}
	err = s.Bus.Read(ctx, passage, func(batch []events.Message) error {
		for _, m := range batch {
			if ref, err := subject.ParseDelta(m.Subject); err == nil {
				there[ref.Name] = m.Get(events.HeaderOp) == string(events.Is)
			}
		}
		return nil
	})
	maps.DeleteFunc(there, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(there)), err
}
