package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// traced is a control plane whose spans go to a Jaeger, and Millrace on it, each
// service a process of its own.
type traced struct {
	*site
	*apart
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{Jaeger: true})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	m := &apart{
		site: s, nats: loopback(t), dataDir: t.TempDir(), owner: t,
		services: map[string][]*service{}, kubeconfigs: s.credentials(),
	}
	m.startBus()
	for _, name := range serviceNames {
		m.addAt(name, m.nats, "--tracing-endpoint="+s.Collector())
	}
	for _, name := range serviceNames {
		m.services[name][0].ready(t)
	}
	return &traced{s, m}
}

// trace is the trace of an object's newest change, or of that to a version, as
// `millrace trace` tells it; the error is what it says where there is none.
func (s *traced) trace(ctx context.Context, namespace, object, version string) (*clustertest.Trace, error) {
	args := []string{"trace", object, "-n", namespace, "-o", "json", "--nats-url=nats://" + s.nats, "--jaeger=" + s.JaegerURL()}
	if version != "" {
		args = append(args, "--rv="+version)
	}
	out, err := exec.CommandContext(ctx, s.binary, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, errors.New(string(exit.Stderr))
	}
	if err != nil {
		return nil, err
	}
	found := &clustertest.Trace{}
	return found, json.Unmarshal(out, found)
}

// tells waits until the trace of a version of an object holds what it must, with
// every span in its place, and gives it.
func (s *traced) tells(t *testing.T, namespace, object, version, what string) *clustertest.Trace {
	t.Helper()
	var last *clustertest.Trace
	want := topology(what)
	eventually(t, "the trace of "+object+" at version "+version, func() string {
		found, err := s.trace(t.Context(), namespace, object, version)
		if err != nil {
			return err.Error()
		}
		last = found
		if lost := found.Orphans(); len(lost) > 0 || len(found.Roots) != 1 {
			return fmt.Sprintf("it has %d roots, and %d spans without their parent, such as %+v", len(found.Roots), len(lost), lost)
		}
		return want.missing(found.Roots)
	})
	return last
}

// TestTraces: what a user does is one trace, through watcher, reconcilers, writer,
// API server and etcd, to whatever it led to.
func TestTraces(t *testing.T) {
	s := startTraced(t)
	t.Run("scale", s.playScale)
	t.Run("rolling update", s.playRollingUpdate)
	t.Run("deletion", s.playDeletion)
	t.Run("namespace", s.playNamespaceDeletion)
	t.Run("fan-out", s.playFanOut) // the last: nobody waits until all its Pods are gone
}

// aTurn is what every turn that asks for something is, by controller and by the
// kind whose change asked for it.
const aTurn = `
millrace-reconcilers: process STATE_%[2]s
  millrace-reconcilers: reconcile %[1]s
    millrace-reconcilers: send TURN_%[1]s
      millrace-writer: process TURN_%[1]s`

// aWrite is what every request of the writer is: the API server's part of it, with
// etcd's, and the change that came of it.
const aWrite = `
millrace-writer: %[1]s
  apiserver: *
    .. etcd: etcdserverpb.KV/Txn
  millrace-watcher: send EV_%[2]s`

// chain hangs trees below each other: each below the last line of the one before.
func chain(trees ...string) string {
	var out strings.Builder
	depth := 0
	for _, tree := range trees {
		deepest := depth
		for line := range strings.Lines(strings.TrimSpace(tree)) {
			text := strings.TrimRight(line, "\n")
			deepest = depth + (len(text)-len(strings.TrimLeft(text, " ")))/2 + 1
			out.WriteString(strings.Repeat("  ", depth) + text + "\n")
		}
		depth = deepest
	}
	return out.String()
}

func turnOf(controller, kind string) string { return fmt.Sprintf(aTurn, controller, kind) }

func writeOf(request, kind string) string { return fmt.Sprintf(aWrite, request, kind) }

const (
	putSet  = "PUT /apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
	postSet = "POST /apis/apps/v1/namespaces/{namespace}/replicasets"
	postPod = "POST /api/v1/namespaces/{namespace}/pods"
	deploys = "deployments_apps"
	sets    = "replicasets_apps"
)

// playScale: from the change of one number to the Pods, and to what became of them.
func (s *traced) playScale(t *testing.T) {
	a := s.arena(t, "traced-scale")
	must(t, a.Deploy(t.Context(), "web", first, 1))
	until(t, a, clustertest.RolledOut("web", first, 1))
	d, err := s.kube.AppsV1().Deployments(a.Namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, a, clustertest.RolledOut("web", first, 3))
	told := s.tells(t, a.Namespace, "deploy/web", d.ResourceVersion, chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(putSet, sets),
		turnOf("replicaset-controller", sets), writeOf(postPod+" x2", "pods")))
	s.leadBack(t, a.Namespace, told.ID, 2)
	clear(t, a)
}

// leadBack: the newest traces of so many Pods of a namespace, which tell of their
// last status, have links from version to version back to a trace.
func (s *traced) leadBack(t *testing.T, namespace, to string, want int) {
	t.Helper()
	jaeger, err := clustertest.AskJaeger(s.JaegerURL())
	must(t, err)
	eventually(t, "the traces of status reports of Pods lead back to their birth", func() string {
		pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), everything)
		if err != nil {
			return err.Error()
		}
		found := 0
		for _, p := range pods.Items {
			at, err := s.trace(t.Context(), namespace, "pod/"+p.Name, p.ResourceVersion)
			for hop := 0; err == nil && at.ID != to && hop < 10 && len(at.Roots[0].Links) > 0; hop++ {
				at, err = jaeger.Trace(t.Context(), at.Roots[0].Links[0].Trace)
			}
			if err == nil && at.ID == to {
				found++
			}
		}
		if found != want {
			return fmt.Sprintf("%d of %d", found, want)
		}
		return ""
	})
}

// playRollingUpdate: the new ReplicaSet and its first Pod come of the user's change.
func (s *traced) playRollingUpdate(t *testing.T) {
	a := s.arena(t, "traced-roll")
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	d, err := s.kube.AppsV1().Deployments(a.Namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"`+second+`"}]}}}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, a, clustertest.RolledOut("web", second, 2))
	s.tells(t, a.Namespace, "deploy/web", d.ResourceVersion, chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(postSet, sets),
		turnOf("replicaset-controller", sets), writeOf(postPod, "pods")))
	clear(t, a)
}

// playDeletion: what the garbage collector takes away after a Deployment, down to
// the Pods, comes of the user's deletion.
func (s *traced) playDeletion(t *testing.T) {
	a := s.arena(t, "traced-delete")
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	must(t, a.DeleteDeployments(t.Context()))
	until(t, a, clustertest.Empty())
	s.tells(t, a.Namespace, "deploy/web", "", chain("millrace-watcher: send EV_"+deploys,
		turnOf("garbage-collector-controller", deploys), writeOf("DELETE /apis/apps/v1/namespaces/{namespace}/replicasets/{name}", sets),
		turnOf("garbage-collector-controller", sets+" x2"), writeOf("DELETE /api/v1/namespaces/{namespace}/pods/{name}", "pods")))
}

// playNamespaceDeletion: Millrace has no namespace-controller yet, so the real
// kube-controller-manager's takes the namespace apart. What it deletes is a first
// cause each, and what our controllers make of that belongs to it.
func (s *traced) playNamespaceDeletion(t *testing.T) {
	a := s.arena(t, "traced-namespace")
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	kcm, err := s.StartKCM(t.Context(), 1, clustertest.KCM{Controllers: "namespace-controller", Args: []string{"--leader-elect=false"}})
	must(t, err)
	t.Cleanup(func() { must(t, kcm.Stop()) })
	must(t, s.kube.CoreV1().Namespaces().Delete(t.Context(), a.Namespace, metav1.DeleteOptions{}))
	eventually(t, "the namespace goes", func() string {
		_, err := s.kube.CoreV1().Namespaces().Get(t.Context(), a.Namespace, metav1.GetOptions{})
		return gone(err)
	})
	s.tells(t, "", "namespace/"+a.Namespace, "", "millrace-watcher: send EV_namespaces")
	s.tells(t, a.Namespace, "deploy/web", "", "millrace-watcher: send EV_"+deploys)
}

// playFanOut: of the births of 500 Pods, 50 are in the trace of the change that
// asked for them; each of the others has one of its own, which leads back to it. On
// a machine that has too much to do, some changes are seen too late after their
// request to be known as ours, so what must be there is nine of ten.
func (s *traced) playFanOut(t *testing.T) {
	const pods, bound, most = 500, 50, 0.9
	a := s.arena(t, "traced-fan-out")
	must(t, a.Deploy(t.Context(), "web", first, 0))
	until(t, a, clustertest.Available(1))
	d, err := s.kube.AppsV1().Deployments(a.Namespace).Patch(t.Context(), "web", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods), metav1.PatchOptions{})
	must(t, err)
	until(t, a, clustertest.Born(pods))
	told := s.tells(t, a.Namespace, "deploy/web", d.ResourceVersion, chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(putSet, sets),
		turnOf("replicaset-controller", sets), writeOf(fmt.Sprintf("%s x%.0f", postPod, most*bound), "pods")))
	births := 0
	for span := range told.All() {
		if span.Name == postPod {
			births++
		}
	}
	if births != bound {
		t.Errorf("%d births of pods are in one trace, want %d", births, bound)
	}
	b := connect(t, s.nats)
	eventually(t, "the other births lead back to it", func() string { return s.elsewhere(t, b, a.Namespace, told.ID, most*(pods-bound)) })
}

// elsewhere counts the Pods whose birth is in a trace of its own that has a link to
// a trace.
func (s *traced) elsewhere(t *testing.T, b bus.Bus, namespace, to string, want float64) string {
	jaeger, err := clustertest.AskJaeger(s.JaegerURL())
	if err != nil {
		return err.Error()
	}
	found := 0
	seen := map[string]bool{}
	for _, m := range read(t, b, subject.LogStream("pods")) {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil || ref.Namespace != namespace || seen[ref.Name] {
			continue
		}
		seen[ref.Name] = true
		id := trace.Context(events.TraceOf(m.Header)).TraceID().String()
		if id == to {
			continue
		}
		own, err := jaeger.Trace(t.Context(), id)
		if err != nil {
			return err.Error()
		}
		for _, link := range own.Roots[0].Links {
			if link.Trace == to {
				found++
			}
		}
	}
	if float64(found) < want {
		return fmt.Sprintf("%d do, want %.0f", found, want)
	}
	return ""
}
