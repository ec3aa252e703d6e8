package controllerflags

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func TestSelectionLeavesTheGarbageCollectorOut(t *testing.T) {
	o := New()
	names := func() []string {
		chosen, err := o.Choose()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, c := range chosen.All() {
			all = append(all, c.Describe().Name)
		}
		return all
	}
	if got := names(); !slices.Contains(got, "garbage-collector-controller") {
		t.Errorf("by default %v run, without the garbage collector", got)
	}
	o.collect = false
	if got := names(); slices.Contains(got, "garbage-collector-controller") || len(got) == 0 {
		t.Errorf("with --enable-garbage-collector=false %v run", got)
	}
	if got := names(); slices.Contains(got, "root-ca-certificate-publisher-controller") {
		t.Errorf("without a root certificate %v run", got)
	}
}

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
		o := New()
		o.Controllers, o.Shadow = c.controllers, c.shadow
		got, err := o.Choose()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(named(got.Acting), c.acting) || !slices.Equal(named(got.Looking), c.looking) {
			t.Errorf("--controllers=%v --shadow=%v: %v act and %v look on", c.controllers, c.shadow, named(got.Acting), named(got.Looking))
		}
		if all := got.All(); len(all) != len(c.acting)+len(c.looking) {
			t.Errorf("--shadow=%v: the kinds of %v are watched", c.shadow, named(all))
		}
	}
}

// No controller must act by mistake: a name in --shadow that is not among --controllers is an
// error that says what to do.
func TestShadowMustBeChosen(t *testing.T) {
	for shadow, want := range map[string]string{"deployment": "name it there too", "no-such": "known controllers"} {
		o := New()
		o.Controllers, o.Shadow = []string{"replicaset"}, []string{shadow}
		if _, err := o.Choose(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--shadow") {
			t.Errorf("--shadow=%s is %v, want an error with %q", shadow, err, want)
		}
	}
}

// For a controller that only a cloud-controller-manager runs, the log has kube-controller-manager's
// message.
func TestControllersOfCloudsAreSkippedInTheLog(t *testing.T) {
	defer klog.CaptureState().Restore()
	var out bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&out)
	o, f := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(f)
	ok(t, f.Parse([]string{"--controllers=service,garbagecollector"}))
	_, err := o.Choose()
	ok(t, err)
	klog.Flush()
	log := out.String()
	if !strings.Contains(log, `"Skipping a cloud provider controller" controller="service-lb-controller"`) || strings.Count(log, "Skipping") != 1 {
		t.Errorf("the log is\n%s", log)
	}
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
