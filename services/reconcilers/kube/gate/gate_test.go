package gate

import (
	"slices"
	"strings"
	"testing"
)

func TestKnown(t *testing.T) {
	all := Known()
	if len(all) < 200 || !slices.IsSortedFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d gates are known", len(all))
	}
	seen := map[string]Gate{}
	for _, g := range all {
		if _, twice := seen[g.Name]; twice {
			t.Errorf("%s is there twice", g.Name)
		}
		seen[g.Name] = g
		if g.Fixed != "" && len(g.Readers) > 0 || g.Fixed != "" && g.Locked {
			t.Errorf("%s is fixed, and read or locked", g.Name)
		}
	}
	for name := range readers {
		if g, ok := seen[name]; !ok || g.Locked {
			t.Errorf("%s is read, and cannot be set: %+v", name, g)
		}
	}
	for name := range fixed {
		if _, ok := seen[name]; !ok {
			t.Errorf("%s is fixed, and not known", name)
		}
	}
}

func TestSet(t *testing.T) {
	s := Set{StorageVersionAPI: true}
	if !s.On(StorageVersionAPI) || Set(nil).On(StorageVersionAPI) || !s.On(APIServerIdentity) {
		t.Error("a gate is what it is set to, or its default")
	}
	if s.Of(APIServerIdentity) != nil || !s.Of(StorageVersionAPI, APIServerIdentity).On(StorageVersionAPI) {
		t.Error("Of keeps other gates, or is not nil without any")
	}
	if text := s.Settings(); string(text) != `{"gates":{"StorageVersionAPI":true}}` || Set(nil).Settings() != nil {
		t.Errorf("the settings are %s", text)
	}
}
