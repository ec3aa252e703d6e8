package watcher

import (
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestScopesDivideTheKinds: each kind is in exactly one of the two scopes, and in all.
func TestScopesDivideTheKinds(t *testing.T) {
	t.Parallel()
	for kind, want := range map[kinds.Name]Scope{
		"pods": BuiltIn, "configmaps": BuiltIn, "leases.coordination.k8s.io": BuiltIn,
		"secrets": Other, "widgets.example.com": Other, "novelties.apps": Other,
	} {
		for _, scope := range []Scope{BuiltIn, Other} {
			if scope.Has(kind) != (scope == want) {
				t.Errorf("%s has %s: %t", scope, kind, scope != want)
			}
		}
		if !All.Has(kind) || !Scope("").Has(kind) {
			t.Errorf("not every scope has %s", kind)
		}
	}
	if _, err := New(Config{REST: &rest.Config{}, Bus: memory.New(memory.Options{}), Scope: "none"}); err == nil {
		t.Error("a watcher of a scope that does not exist was made")
	}
}

// TestWatchersOfTwoScopesDoNotWaitForEachOther: each watches all kinds of its own scope, and none
// of the other's, although they hear each other.
func TestWatchersOfTwoScopesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	own := []kinds.Kind{
		kinds.Pods.Kind, kinds.ConfigMaps.Kind, kinds.Services.Kind, kinds.Nodes.Kind, kinds.Endpoints.Kind,
		kinds.ServiceAccounts.Kind, kinds.Namespaces.Kind, kinds.PersistentVolumes.Kind,
	}
	of := func(scope Scope) *Service {
		service, _ := start(t, s, b, string(scope), func(c *Config) {
			c.Scope, c.Kinds = scope, append(slices.Clone(own), kinds.Secrets.Kind)
		})
		return service
	}
	services := map[Scope]*Service{BuiltIn: of(BuiltIn), Other: of(Other)}
	for scope, service := range services {
		watchertest.Until(t, func() bool {
			for _, kind := range append(slices.Clone(own), kinds.Secrets.Kind) {
				if service.watches(kind.Name) != scope.Has(kind.Name) {
					return false
				}
			}
			return true
		})
	}
}
