package serviceflags

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// A process with all controllers in shadow has no engine, and its writer is idle.
func TestShadowMakesNothingThatActs(t *testing.T) {
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b, err := stream.Connect(t.Context(), stream.Options{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for shadow, want := range map[string][]string{"": {"reconcilers"}, "*": {"shadows"}, "replicaset": {"shadows", "reconcilers"}} {
		o := controllerflags.New()
		o.Controllers = []string{"deployment", "replicaset"}
		if shadow != "" {
			o.Shadow = []string{shadow}
		}
		chosen, err := o.Choose()
		if err != nil {
			t.Fatal(err)
		}
		parts, err := Reconcilers(b, chosen, shell.Signatures{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range parts {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("--shadow=%q makes %v, want %v", shadow, names, want)
		}
	}
	if p := Idle("writer"); len(p.Checks) > 0 || len(p.Collectors) > 0 {
		t.Errorf("an idle writer has %+v", p)
	}
}
