package serviceflags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestTheFileOfLeaderMigration: a file that cannot be used is refused with what to do about it.
func TestTheFileOfLeaderMigration(t *testing.T) {
	const head = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n"
	for name, c := range map[string]struct {
		off  bool
		text string // of the file; "": none
		wait time.Duration
		says string
	}{
		"a good one":                       {text: head + "leaderName: moves\ncontrollerLeaders: [{name: replicaset-controller, component: \"*\"}]", says: ""},
		"of an older version":              {text: "apiVersion: controllermanager.config.k8s.io/v1beta1\nkind: LeaderMigrationConfiguration\nleaderName: moves\nresourceLock: leases\n", says: ""},
		"none, and nothing asks":           {off: true, says: ""},
		"nothing asks for it":              {off: true, text: head, says: "without --enable-leader-migration"},
		"none":                             {says: "--leader-migration-config"},
		"a Lease that no process can hold": {wait: time.Minute, text: head + "leaderName: moves\n", says: "--leader-elect-renew-deadline"},
		"no such kind":                     {text: "apiVersion: v1\nkind: ConfigMap\n", says: "read --leader-migration-config"},
		"no lock in version v1":            {text: head + "leaderName: moves\nresourceLock: leases\n", says: "resourceLock"},
		"an unknown field":                 {text: head + "leaderNames: moves\n", says: "leaderNames"},
		"no name":                          {text: head + "controllerLeaders: []\n", says: "leaderName"},
		"a lock of the past":               {text: "apiVersion: controllermanager.config.k8s.io/v1beta1\nkind: LeaderMigrationConfiguration\nleaderName: moves\nresourceLock: endpoints\n", says: "\"leases\""},
		"a nameless controller":            {text: head + "leaderName: moves\ncontrollerLeaders: [{component: \"*\"}]", says: "controllerLeaders[0].name"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Migration{Enabled: !c.off}
			if c.text != "" {
				o.file = filepath.Join(t.TempDir(), "migration.yaml")
				ok(t, os.WriteFile(o.file, []byte(c.text), 0o600))
			}
			lease := election.Defaults()
			lease.Retry = max(lease.Retry, c.wait)
			err := o.Check(lease)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if err == nil && !c.off && o.LeaseName != "moves" {
				t.Errorf("the Lease is %q", o.LeaseName)
			}
		})
	}
}

// TestWhichControllersMove: those of the component "*" or "millrace" wait in shadow. Another one that
// would act is refused, since kube-controller-manager runs it, too.
func TestWhichControllersMove(t *testing.T) {
	const file = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: moves\ncontrollerLeaders:\n" +
		"- {name: replicaset-controller, component: \"*\"}\n- {name: deployment-controller, component: millrace}\n- {name: job-controller, component: kube-controller-manager}\n"
	o := Migration{Enabled: true, file: filepath.Join(t.TempDir(), "migration.yaml")}
	ok(t, os.WriteFile(o.file, []byte(file), 0o600))
	ok(t, o.Check(election.Defaults()))
	for name, c := range map[string]struct {
		acting, looking []string
		says            string
	}{
		"both":                       {acting: []string{"replicaset-controller", "deployment-controller"}},
		"one, and another in shadow": {acting: []string{"replicaset-controller"}, looking: []string{"job-controller"}},
		"one of the other component": {acting: []string{"replicaset-controller", "job-controller"}, says: "of job-controller, so that kube-controller-manager runs them, too"},
		"one that is not named":      {acting: []string{"replicaset-controller", "cronjob-controller"}, says: "of cronjob-controller"},
		"none":                       {looking: []string{"replicaset-controller"}, says: "nothing would move"},
	} {
		t.Run(name, func(t *testing.T) {
			var chosen controllerflags.Choice
			var err error
			if len(c.acting) > 0 {
				chosen.Acting, err = controllers.Select(c.acting, controllers.Whole())
				ok(t, err)
			}
			if len(c.looking) > 0 {
				chosen.Looking, err = controllers.Select(c.looking, controllers.Whole())
				ok(t, err)
			}
			err = o.Divide(&chosen)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
				return
			}
			ok(t, err)
			if len(chosen.Compared()) != len(c.acting)+len(c.looking) || len(chosen.Acting) != len(c.acting) {
				t.Errorf("%d controllers act, and %d are in shadow, always or at times", len(chosen.Acting), len(chosen.Compared()))
			}
			for _, p := range profiles(chosen) {
				if !p.Leased {
					t.Errorf("the writer carries out the turns of %s without the Lease", p.Name)
				}
			}
		})
	}
}

// TestWithoutLeaderMigrationNothingMoves: every controller acts at all times.
func TestWithoutLeaderMigrationNothingMoves(t *testing.T) {
	var o Migration
	acting, err := controllers.Select([]string{"replicaset-controller"}, controllers.Whole())
	ok(t, err)
	chosen := controllerflags.Choice{Acting: acting}
	ok(t, o.Divide(&chosen))
	if chosen.Leased != nil || len(chosen.Compared()) > 0 || profiles(chosen)[0].Leased || o.Lease(nil, election.Defaults(), &Writer{}, chosen) != nil {
		t.Error("a controller moves with a Lease")
	}
}
