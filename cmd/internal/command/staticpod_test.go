package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestTheStaticPod: the program has its flags, each file that they name is mounted, and the probes
// ask the health address. Until --shadow is removed, all controllers are in shadow.
func TestTheStaticPod(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deployments, "static-pod", "millrace.yaml"))
	ok(t, err)
	var pod corev1.Pod
	ok(t, yaml.UnmarshalStrict(text, &pod))
	c := pod.Spec.Containers[0]
	command := subcommand(t, c.Args[0])
	ok(t, command.ParseFlags(c.Args[1:]))
	mounted := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		mounted[v.Name] = v.HostPath.Path
	}
	at := map[string]bool{}
	for _, m := range c.VolumeMounts {
		at[m.MountPath] = true
		if mounted[m.Name] != m.MountPath {
			t.Errorf("%s is %s on the node", m.MountPath, mounted[m.Name])
		}
		if m.ReadOnly == (m.MountPath == "/var/lib/millrace") {
			t.Errorf("%s may be read alone: %t", m.MountPath, m.ReadOnly)
		}
	}
	for _, flag := range []string{"kubeconfig", "root-ca-file", "service-account-private-key-file", "data-dir"} {
		path := flagOf(c.Args, flag)
		if !at[path] {
			t.Errorf("--%s=%s is not mounted", flag, path)
		}
		delete(at, path)
	}
	for path := range at {
		t.Errorf("%s is mounted, and no flag names it", path)
	}
	host, port, _ := strings.Cut(flagOf(c.Args, "health-address"), ":")
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		if probe.HTTPGet.Host != host || probe.HTTPGet.Port.String() != port {
			t.Errorf("%s:%s is asked, and %s:%s answers", probe.HTTPGet.Host, probe.HTTPGet.Port.String(), host, port)
		}
	}
	chosen, err := controllers.Select([]string{flagOf(c.Args, "controllers")}, controllers.Whole())
	ok(t, err)
	all, err := controllerflags.Divide(chosen, []string{flagOf(c.Args, "shadow")}, controllers.Whole())
	ok(t, err)
	if len(all.Acting) > 0 || len(all.Looking) == 0 {
		t.Errorf("%d controllers act, %d look on", len(all.Acting), len(all.Looking))
	}
}
