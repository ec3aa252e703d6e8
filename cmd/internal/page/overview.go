package page

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

// contents is what there is to be looked at.
type contents struct {
	Version    string    `json:"version"`
	Program    string    `json:"program"`
	Flags      []string  `json:"flags,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Now        time.Time `json:"now"`
	Begins     time.Time `json:"begins,omitzero"` // the earliest that any kind has
	Kinds      []family  `json:"kinds"`
	Namespaces []string  `json:"namespaces"`
	// Controllers are those whose turns are kept.
	Controllers []string `json:"controllers"`
}

// family is a kind, and how many of it are there.
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
	c := contents{Version: a.Version, Program: a.Program, Flags: a.Flags, Namespace: a.Namespace, Now: time.Now(), Kinds: []family{}, Namespaces: []string{}}
	if c.Controllers, err = a.archive.Controllers(ctx); err != nil {
		return nil, err
	}
	namespaces := map[string]bool{}
	for _, kind := range have {
		f := family{Kind: kind, Resource: kind.Name.Resource()}
		err := a.names.each(ctx, kind.Name, func(ref events.Ref, there bool) {
			if ref.Namespace != "" {
				namespaces[ref.Namespace] = true
			}
			if kind.Name == kinds.Namespaces.Name {
				namespaces[ref.Name] = true
			}
			if there {
				f.Objects++
			}
		})
		if err != nil {
			return nil, err
		}
		begins, now, err := a.begins(ctx, kind.Name)
		if err != nil {
			return nil, err
		}
		if !begins.IsZero() && (c.Begins.IsZero() || begins.Before(c.Begins)) {
			c.Begins = begins
		}
		if !now.IsZero() {
			c.Now = now // by the bus's clock, which moments are compared with
		}
		c.Kinds = append(c.Kinds, f)
	}
	slices.SortFunc(c.Kinds, func(a, b family) int { return strings.Compare(string(a.Name), string(b.Name)) })
	c.Namespaces = slices.AppendSeq(c.Namespaces, maps.Keys(namespaces))
	slices.Sort(c.Namespaces)
	return c, nil
}

// begins is when the log of a kind begins, zero when it is empty, and what time it
// is for the bus.
func (p *page) begins(ctx context.Context, kind kinds.Name) (begins, now time.Time, err error) {
	stream := subject.LogStream(kind)
	state, err := p.archive.StreamState(ctx, stream)
	if err != nil || state.Messages == 0 {
		return begins, state.Now, err
	}
	m, _, err := p.archive.At(ctx, stream, state.First)
	if errors.Is(err, events.ErrDamaged) {
		err = nil // whoever reads it will be told
	}
	return m.Time, state.Now, err
}

// hit is an object, or a kind, that fits what somebody types.
type hit struct {
	Kind      kinds.Name `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"` // empty: the kind itself
	Gone      bool       `json:"gone,omitempty"`

	how match
}

// hits bounds how many are offered.
const hits = 50

// search finds objects by what somebody types: a part of a name, or KIND/NAME, or
// KIND NAME, with the kind as the commands take it.
func search(ctx context.Context, a *ask) (any, error) {
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	typed := strings.ToLower(strings.TrimSpace(a.word("q")))
	word, name, split := strings.Cut(strings.Replace(typed, " ", "/", 1), "/")
	if !split {
		name = typed
	} else if kind, err := reader.Resolve(word, have); err == nil {
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
			continue // forgotten in this moment
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

// first orders what is true before what is not.
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
	lags, err := a.record.Lags(ctx)
	if err != nil {
		return nil, err
	}
	parked, err := a.record.Parked(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		Lags   []record.Lag    `json:"lags"`
		Parked []record.Parked `json:"parked"`
	}{append([]record.Lag{}, lags...), append([]record.Parked{}, parked...)}, nil
}
