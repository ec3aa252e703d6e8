package query_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

func holding(kind kinds.Name, n int) query.Holding {
	h := query.Holding{Kind: kind, Count: n}
	for i := range n {
		h.Standing = append(h.Standing, query.Standing{Name: fmt.Sprintf("o%05d", n-1-i)})
	}
	return h
}

func TestWhatIsNamedOfContents(t *testing.T) {
	for what, c := range map[string]struct {
		kinds []query.Holding
		after map[kinds.Name]string
		want  string // of each kind: first and last name, how many, and whether they are a part and named again
	}{
		"all":                    {[]query.Holding{holding("a", 2), holding("b", 1)}, nil, "a o00000-o00001 2 false false; b o00000-o00000 1 false false; "},
		"a share of each":        {[]query.Holding{holding("a", 1500), holding("b", 3), holding("c", 2000)}, nil, "a o00000-o00497 498 true false; b o00000-o00002 3 false false; c o00000-o00498 499 true false; "},
		"those behind a name":    {[]query.Holding{holding("a", 1500)}, map[kinds.Name]string{"a": "o00999"}, "a o01000-o01499 500 true false; "},
		"behind one that is not": {[]query.Holding{holding("a", 20)}, map[kinds.Name]string{"a": "o00009x"}, "a o00010-o00019 10 true false; "},
		"none behind it":         {[]query.Holding{holding("a", 1500)}, map[kinds.Name]string{"a": "o01499"}, "a o00000-o00999 1000 true true; "},
		"all behind it":          {[]query.Holding{holding("a", 2)}, map[kinds.Name]string{"a": "a"}, "a o00000-o00001 2 false false; "},
		"of another kind":        {[]query.Holding{holding("a", 2)}, map[kinds.Name]string{"b": "z"}, "a o00000-o00001 2 false false; "},
	} {
		contents := query.Contents{Kinds: c.kinds}
		contents.Limit(c.after)
		got := ""
		for _, h := range contents.Kinds {
			got += fmt.Sprintf("%s %s-%s %d %v %v; ", h.Kind, h.Standing[0].Name, h.Standing[len(h.Standing)-1].Name, len(h.Standing), h.Part, h.Again)
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", what, got, c.want)
		}
	}
}
