package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/clustertest"
)

// pageCommand matches the commands of a page.
var pageCommand = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestTenMinutes runs the commands of docs/ten-minutes.md as they are, on a node whose kube-controller-manager
// runs as kubeadm starts it: at most ten commands, and at most ten minutes. The directories and the port of
// the page are those of the test.
func TestTenMinutes(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl", "kube-controller-manager"))
	s.freeManagersLease(t)
	page, err := os.ReadFile("../../docs/ten-minutes.md")
	must(t, err)
	n := s.kubeadmNode(t)
	const namespace, limit = "ten-minutes", 10 * time.Minute
	s.arena(t, namespace)
	s.abandon(t, namespace)
	load := s.churn(t, namespace)
	begun := time.Now()
	commands := pageCommand.FindAllStringSubmatch(string(page), -1)
	if len(commands) < 8 || len(commands) > 10 {
		t.Fatalf("the page has %d commands, want 8 to 10", len(commands))
	}
	t.Cleanup(func() { // the rights must not help another test
		_, _ = n.do(t, strings.Replace(commands[0][1], "kubectl apply", "kubectl delete", 1))
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of millrace run:\n%s", tail(filepath.Join(n.dir, "millrace.log")))
		}
	})
	for _, c := range commands {
		out, err := n.do(t, c[1])
		for asks := strings.HasPrefix(c[1], "millrace shadow") || strings.Contains(c[1], "--plan"); asks && err != nil && time.Since(begun) < limit; {
			time.Sleep(2 * time.Second)
			out, err = n.do(t, c[1])
		}
		t.Logf("%s\n$ %s\n%s", time.Since(begun).Round(time.Second), c[1], out)
		must(t, err)
		if strings.HasPrefix(c[1], "millrace takeover") && !strings.Contains(c[1], "--plan") {
			s.actsAnew(t, namespace, "takeover", time.Now())
		}
	}
	s.actsAnew(t, namespace, "giveback", time.Now())
	if took := time.Since(begun); took > limit {
		t.Errorf("all commands of the page took %s, want %s at most", took, limit)
	}
	load.stop()
	within(t, patience, "all pods are there", func() string { return load.missing(t) })
	for _, p := range s.pods(t, namespace) {
		if p.deletes {
			t.Error("a controller has deleted a pod: one too many had been created")
		}
	}
}

// kubeadmNode is a control-plane node as kubeadm makes it, with a kubelet that runs the static pods of
// kube-controller-manager, and nothing else.
type kubeadmNode struct {
	site    *site
	dir     string // where the commands run
	rewrite *strings.Replacer
	env     []string
	bus     string
	ended   chan struct{}
}

func (s *site) kubeadmNode(t *testing.T) *kubeadmNode {
	t.Helper()
	root, bus := t.TempDir(), loopback(t)
	n := &kubeadmNode{site: s, dir: t.TempDir(), ended: make(chan struct{})}
	etc, bin := filepath.Join(root, "kubernetes"), filepath.Join(root, "bin")
	n.rewrite = strings.NewReplacer("millrace rbac", strings.Join(append([]string{"millrace", "rbac"}, rbacFlags(t)...), " "), "/etc/kubernetes", etc, "/var/lib/millrace", filepath.Join(root, "data"), "127.0.0.1:4222", bus, "127.0.0.1:10260", loopback(t))
	n.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.Kubeconfig(clustertest.Admin))
	n.bus = "nats://" + bus
	for _, dir := range []string{filepath.Join(etc, "manifests"), bin} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, os.Symlink(s.Kubeconfig(clustertest.ControllerManager), filepath.Join(etc, "controller-manager.conf")))
	must(t, os.Symlink(s.binary, filepath.Join(bin, "millrace")))
	must(t, os.Symlink(s.Programs.Path("kubectl"), filepath.Join(bin, "kubectl")))
	pod := corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "kube-controller-manager", "kube-system"
	address := fmt.Sprintf("127.%d.%d.%d", 96, os.Getpid()>>8&255, os.Getpid()&255)
	pod.Spec.Containers = []corev1.Container{{
		Name: "kube-controller-manager", Image: "kube-controller-manager", Ports: []corev1.ContainerPort{{ContainerPort: 10257}},
		Command: append([]string{"kube-controller-manager"}, s.kubeadms(t, address)...),
	}}
	text, err := yaml.Marshal(pod)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(etc, "manifests", "kube-controller-manager.yaml"), text, 0o600))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // it removes the namespace at the end
	go n.kubelet(ctx, t, filepath.Join(etc, "manifests"))
	t.Cleanup(func() {
		stop()
		<-n.ended
	})
	return n
}

// do runs a command of the page. What it leaves in the background ends with the test.
func (n *kubeadmNode) do(t *testing.T, command string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euo", "pipefail", "-c", n.rewrite.Replace(command))
	cmd.Dir, cmd.Env = n.dir, n.env
	if !strings.Contains(command, "millrace run") { // the page's port is where the commands look by default
		cmd.Env = append(slices.Clone(n.env), "MILLRACE_NATS_URL="+n.bus)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
	return string(out), err
}

// kubelet runs the static pods of a directory, and restarts one that has ended or whose manifest has changed.
func (n *kubeadmNode) kubelet(ctx context.Context, t *testing.T, dir string) {
	defer close(n.ended)
	type running struct {
		manifest string
		*clustertest.Process
	}
	pods := map[string]running{}
	stop := func(file string) {
		if err := pods[file].Stop(); err != nil {
			t.Error(err)
		}
		delete(pods, file)
	}
	for life := 200; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			p, runs := pods[file]
			if err != nil || runs && p.manifest == string(text) && p.Running() {
				continue
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(text, &pod); err != nil {
				t.Errorf("the static pod's manifest cannot be read: %v\n%s", err, text)
				return
			}
			if runs {
				stop(file)
			}
			life++
			process, err := n.site.Run(fmt.Sprintf("%s-%d", pod.Name, life), n.site.Programs.Path("kube-controller-manager"), pod.Spec.Containers[0].Command[1:]...)
			if err != nil {
				t.Error(err)
				return
			}
			pods[file] = running{string(text), process}
		}
	}
	for file := range pods {
		stop(file)
	}
}
