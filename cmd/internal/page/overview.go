package page

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/subject"
)

// contents is an overview of the record.
type contents struct {
	Version    string    `json:"version"`
	Program    string    `json:"program"`
	Flags      []string  `json:"flags,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Recording  bool      `json:"recording,omitempty"`
	Now        time.Time `json:"now"`
	Begins     time.Time `json:"begins,omitzero"` // the earliest that any kind has
	Kinds      []family  `json:"kinds"`
	Namespaces []string  `json:"namespaces"`
	// Controllers are those with turns on record.
	Controllers []string `json:"controllers"`
}

// family is a kind, with the number of its objects.
type family struct {
	kinds.Kind
	Resource string `json:"resource"`
	Objects  int    `json:"objects"`
}

func overview(ctx context.Context, a *ask) (any, error) {
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	c := contents{Version: a.Version, Program: a.Program, Flags: a.Flags, Namespace: a.Namespace, Recording: a.Recording, Kinds: []family{}, Namespaces: []string{}}
	if c.Controllers, err = a.archive.Controllers(ctx); err != nil {
		return nil, err
	}
	parts := make([]part, len(have))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(folds)
	for i, kind := range have {
		work.Go(func() (err error) {
			parts[i], err = a.part(ctx, kind)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	namespaces := map[string]bool{}
	for _, p := range parts {
		c.Kinds = append(c.Kinds, p.family)
		maps.Copy(namespaces, p.namespaces)
		if !p.begins.IsZero() && (c.Begins.IsZero() || p.begins.Before(c.Begins)) {
			c.Begins = p.begins
		}
		if p.now.After(c.Now) {
			c.Now = p.now // the bus's clock, because moments are compared with its times
		}
	}
	slices.SortFunc(c.Kinds, func(a, b family) int { return strings.Compare(string(a.Name), string(b.Name)) })
	c.Namespaces = slices.AppendSeq(c.Namespaces, maps.Keys(namespaces))
	slices.Sort(c.Namespaces)
	return c, nil
}

// part is one kind's part of the contents.
type part struct {
	family
	namespaces  map[string]bool
	begins, now time.Time
}

func (p *page) part(ctx context.Context, kind kinds.Kind) (part, error) {
	found := part{family: family{Kind: kind, Resource: kind.Name.Resource()}, namespaces: map[string]bool{}}
	err := p.names.each(ctx, kind.Name, func(ref events.Ref, there bool) {
		if ref.Namespace != "" {
			found.namespaces[ref.Namespace] = true
		}
		if kind.Name == kinds.Namespaces.Name {
			found.namespaces[ref.Name] = true
		}
		if there {
			found.Objects++
		}
	})
	if err != nil {
		return found, err
	}
	found.begins, found.now, err = p.begins(ctx, kind.Name)
	return found, err
}

// begins is when the log of a kind begins, zero if it is empty, and the current time of the
// bus.
func (p *page) begins(ctx context.Context, kind kinds.Name) (begins, now time.Time, err error) {
	stream := subject.LogStream(kind)
	state, err := p.archive.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return begins, state.Now, err
	}
	m, _, err := p.archive.At(ctx, stream, state.First)
	if errors.Is(err, events.ErrDamaged) {
		err = nil // every command that reads the message reports the damage
	}
	return m.Time, state.Now, err
}

// hit is an object or a kind that matches the user's input.
type hit struct {
	Kind      kinds.Name `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"` // empty: the kind itself
	Gone      bool       `json:"gone,omitempty"`

	how match
}

// hits is the maximum of offered matches.
const hits = 50

// search finds objects by the user's input: a part of a name, or KIND/NAME, or
// KIND NAME, with the kind spelled as for the commands.
func search(ctx context.Context, a *ask) (any, error) {
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	typed := strings.ToLower(strings.TrimLeft(strings.TrimSpace(a.word("q")), "/"))
	word, name, split := strings.Cut(strings.Replace(typed, " ", "/", 1), "/")
	if !split {
		name = typed
	} else if kind, err := resolve.Kind(word, have); err == nil {
		have = []kinds.Kind{kind}
	} else {
		return []hit{}, nil
	}
	found := []hit{}
	for _, kind := range have {
		if how := fit(kind.Name.Resource(), typed); !split && typed != "" && how >= begins {
			found = append(found, hit{Kind: kind.Name, how: exact + how})
		}
		err := a.names.each(ctx, kind.Name, func(ref events.Ref, there bool) {
			if how := fit(strings.ToLower(ref.Name), name); how > none {
				found = append(found, hit{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Gone: !there, how: how})
			}
		})
		if errors.Is(err, bus.ErrNoStream) {
			continue // the kind's stream was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
	}
	namespace := a.word("namespace")
	slices.SortFunc(found, func(x, y hit) int {
		return cmp.Or(first(!x.Gone, !y.Gone), cmp.Compare(y.how, x.how), first(x.Namespace == namespace, y.Namespace == namespace),
			cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return found[:min(len(found), hits)], nil
}

// first orders true before false.
func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	default:
		return 1
	}
}

func lag(ctx context.Context, a *ask) (any, error) {
	lags, err := a.standing.Lags(ctx)
	if err != nil {
		return nil, err
	}
	parked, err := a.standing.Parked(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		Lags   []standing.Lag    `json:"lags"`
		Parked []standing.Parked `json:"parked"`
	}{append([]standing.Lag{}, lags...), append([]standing.Parked{}, parked...)}, nil
}
