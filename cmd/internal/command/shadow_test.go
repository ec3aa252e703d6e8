package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

func named(list []reconcile.Any) (names []string) {
	for _, c := range list {
		names = append(names, c.Describe().Name)
	}
	return names
}

func TestShadowTakesFromControllers(t *testing.T) {
	for _, c := range []struct {
		controllers, shadow []string
		acting, looking     []string
	}{
		{[]string{"deployment", "replicaset"}, nil, []string{"deployment-controller", "replicaset-controller"}, nil},
		{[]string{"deployment", "replicaset"}, []string{"*"}, nil, []string{"deployment-controller", "replicaset-controller"}},
		{[]string{"deployment", "replicaset"}, []string{"replicaset"}, []string{"deployment-controller"}, []string{"replicaset-controller"}},
		{[]string{"deployment", "replicaset"}, []string{"*", "-deployment-controller"}, []string{"deployment-controller"}, []string{"replicaset-controller"}},
	} {
		o := newControllerOptions()
		o.controllers, o.shadow = c.controllers, c.shadow
		got, err := o.choose()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(named(got.acting), c.acting) || !slices.Equal(named(got.looking), c.looking) {
			t.Errorf("--controllers=%v --shadow=%v: %v act and %v look on", c.controllers, c.shadow, named(got.acting), named(got.looking))
		}
		if all := got.all(); len(all) != len(c.acting)+len(c.looking) {
			t.Errorf("--shadow=%v: the kinds of %v are watched", c.shadow, named(all))
		}
	}
}

// No controller must act by mistake: a name in --shadow that is not among --controllers is an
// error that says what to do.
func TestShadowMustBeChosen(t *testing.T) {
	for shadow, want := range map[string]string{"deployment": "name it there too", "no-such": "known controllers"} {
		o := newControllerOptions()
		o.controllers, o.shadow = []string{"replicaset"}, []string{shadow}
		if _, err := o.choose(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--shadow") {
			t.Errorf("--shadow=%s is %v, want an error with %q", shadow, err, want)
		}
	}
}

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
		o := newControllerOptions()
		o.controllers = []string{"deployment", "replicaset"}
		if shadow != "" {
			o.shadow = []string{shadow}
		}
		chosen, err := o.choose()
		if err != nil {
			t.Fatal(err)
		}
		parts, err := reconcilersParts(b, chosen, shell.Signatures{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range parts {
			names = append(names, p.name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("--shadow=%q makes %v, want %v", shadow, names, want)
		}
	}
	if p := idle("writer"); len(p.checks) > 0 || len(p.collectors) > 0 {
		t.Errorf("an idle writer has %+v", p)
	}
}
