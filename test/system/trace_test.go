package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/clustertest"
)

// traced is a control plane whose spans go to a Jaeger, and Millrace on it, each
// service a process of its own.
type traced struct {
	*site
	*apart
	repeats int // of stories, so far
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	t.Parallel()
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{Jaeger: true})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	m := s.unstarted(t, s.credentials(), time.Now())
	m.startBus()
	for _, name := range serviceNames {
		m.addAt(name, m.nats, "--tracing-endpoint="+s.Collector())
	}
	for _, name := range serviceNames {
		m.services[name][0].ready(t)
	}
	return &traced{site: s, apart: m}
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

// mostRepeats is how many stories may be played again, of all: where the trace of one lacks
// something and a service says why. On a machine that has too much to do, a change of ours may
// be seen so long before its writer has told of it that it begins a trace of its own, which the
// watcher counts; and spans may not get to the collector in time, which every service counts.
// Where nothing was missed or lost the first trace has to be whole.
const mostRepeats = 2

// missed are the causes that were missed and the spans that were lost so far, as the
// services tell them.
func (s *traced) missed(t *testing.T) string {
	t.Helper()
	counts := regexp.MustCompile(`(?m)^(millrace_watcher_missed_causes_total\S*|millrace_trace_spans_total\{result="(failed|dropped)"\}) .*$`)
	var all []string
	for _, service := range []string{"watcher", "reconcilers", "writer"} {
		code, page := s.services[service][0].get(t, "/metrics")
		if code != http.StatusOK {
			t.Fatalf("the metrics of %s: %d %s", service, code, page)
		}
		for _, line := range counts.FindAllString(page, -1) {
			all = append(all, service+": "+line)
		}
	}
	return strings.Join(all, "\n")
}

// tale is what must be in the trace of a version of an object, the newest if none is named,
// with every span in its place.
type tale struct{ namespace, object, version, what string }

// tells plays until nothing is missing in what is told of it. play gives the tales; behind,
// which may be nil, says what is missing behind the trace of the first of them.
func (s *traced) tells(t *testing.T, play func(attempt int) []tale, behind func(told *clustertest.Trace) (missing string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		before := s.missed(t)
		tales := play(attempt)
		missing := patiently(patience/2, func() string {
			var first *clustertest.Trace
			for _, one := range tales {
				told, missing := s.lacks(t, one)
				if missing != "" {
					return fmt.Sprintf("not in the trace of %s at version %q: %s", one.object, one.version, missing)
				}
				if first == nil {
					first = told
				}
			}
			if behind == nil {
				return ""
			}
			return behind(first)
		})
		if missing == "" {
			return
		}
		missed := s.missed(t)
		if s.repeats == mostRepeats || missed == before {
			t.Fatalf("the %d. time that it was told, after %d repeats of all stories: %s; missed and lost were\n%s", attempt, s.repeats, missing, missed)
		}
		s.repeats++
		t.Logf("once more, the %d. of at most %d repeats: %s; missed and lost were\n%s", s.repeats, mostRepeats, missing, missed)
	}
}

// lacks is the trace of a tale, and what is not in it.
func (s *traced) lacks(t *testing.T, of tale) (told *clustertest.Trace, missing string) {
	t.Helper()
	told, err := s.trace(t.Context(), of.namespace, of.object, of.version)
	if err != nil {
		return nil, err.Error()
	}
	if len(told.Roots) != 1 {
		return nil, fmt.Sprintf("it has %d roots, %d of them without their parent", len(told.Roots), len(told.Orphans()))
	}
	if lacks := topology(of.what).missing(told.Roots); lacks != "" {
		return nil, fmt.Sprintf("%s; it begins with %s: %s at %v", lacks, told.Roots[0].Service, told.Roots[0].Name, told.Roots[0].Start)
	}
	return told, ""
}

// patiently asks until nothing is missing, for so long; it gives what still is.
func patiently(bound time.Duration, holds func() (missing string)) (missing string) {
	for end := time.Now().Add(bound); ; {
		if missing = holds(); missing == "" || time.Now().After(end) {
			return missing
		}
		<-time.After(200 * time.Millisecond)
	}
}

// TestTraces: what a user does is one trace, through watcher, reconcilers, writer,
// API server and etcd, to whatever it led to.
func TestTraces(t *testing.T) {
	s := startTraced(t)
	t.Run("scale", s.playScale)
	t.Run("rolling update", s.playRollingUpdate)
	t.Run("deletion", s.playDeletion)
	t.Run("namespace", s.playNamespaceDeletion)
	t.Run("fan-out", s.playFanOut) // the last: it does not wait until all its Pods are gone
	t.Logf("%d of at most %d repeats", s.repeats, mostRepeats)
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

// below puts a tree below the root of another one.
func below(tree string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(tree), "\n", "\n  ")
}

func turnOf(controller, kind string) string { return fmt.Sprintf(aTurn, controller, kind) }

func writeOf(request, kind string) string { return fmt.Sprintf(aWrite, request, kind) }

const (
	putSet    = "PUT /apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
	postSet   = "POST /apis/apps/v1/namespaces/{namespace}/replicasets"
	putStatus = "PUT /apis/apps/v1/namespaces/{namespace}/deployments/{name}/status"
	postPod   = "POST /api/v1/namespaces/{namespace}/pods"
	deploys   = "deployments_apps"
	sets      = "replicasets_apps"
)

// runs is what becomes of a Pod that was created: the scheduler binds it, and the kubelet
// says how it is.
const runs = `
millrace-watcher: send EV_pods
  .. millrace-watcher: send EV_pods`

// playScale: from the change of one number to the running Pods, and to the Deployment's
// saying so. Whose turn reports is not said: a change of a Pod that has been folded before
// its ticket is here is answered in the turn of an earlier one, of the same trace.
func (s *traced) playScale(t *testing.T) {
	a := s.arena(t, "traced-scale")
	must(t, a.Deploy(t.Context(), "web", first, 1))
	until(t, a, clustertest.RolledOut("web", first, 1))
	what := chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(putSet, sets),
		turnOf("replicaset-controller", sets), writeOf(postPod+" x2", "pods"), runs) + below(".. "+strings.TrimSpace(writeOf(putSet+"/status", sets))) +
		"\n" + below(".. "+strings.TrimSpace(writeOf(putStatus, deploys)))
	s.tells(t, func(attempt int) []tale {
		version := s.patch(t, a.Namespace, fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+2*attempt))
		until(t, a, clustertest.RolledOut("web", first, 1+2*attempt))
		return []tale{{a.Namespace, "deploy/web", version, what}}
	}, func(told *clustertest.Trace) (missing string) {
		if missing = s.lastsUntilRunning(t, a.Namespace, told.ID, 2); missing == "" {
			missing = s.lastsUntilReported(t, a.Namespace, told.ID)
		}
		return missing
	})
	clear(t, a)
}

// patch changes the Deployment web, and gives the version that this made.
func (s *traced) patch(t *testing.T, namespace, change string) (version string) {
	t.Helper()
	d, err := s.kube.AppsV1().Deployments(namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(change), metav1.PatchOptions{})
	must(t, err)
	return d.ResourceVersion
}

// lastsUntilRunning: in a trace are the last versions, in which they run, of so many
// Pods of a namespace.
func (s *traced) lastsUntilRunning(t *testing.T, namespace, id string, want int) (missing string) {
	t.Helper()
	pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), everything)
	if err != nil {
		return err.Error()
	}
	found := 0
	for _, p := range pods.Items {
		if at, err := s.trace(t.Context(), namespace, "pod/"+p.Name, p.ResourceVersion); err == nil && at.ID == id && p.Status.Phase == corev1.PodRunning {
			found++
		}
	}
	if found != want {
		return fmt.Sprintf("%d of %d Pods run in it", found, want)
	}
	return ""
}

// lastsUntilReported: the last version of the Deployment web, which says that all its Pods
// run, is in a trace.
func (s *traced) lastsUntilReported(t *testing.T, namespace, id string) (missing string) {
	t.Helper()
	d, err := s.kube.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	at, err := s.trace(t.Context(), namespace, "deploy/web", d.ResourceVersion)
	switch {
	case err != nil:
		return err.Error()
	case at.ID != id || d.Status.AvailableReplicas != *d.Spec.Replicas:
		return fmt.Sprintf("version %s, with %d Pods available, is in trace %s", d.ResourceVersion, d.Status.AvailableReplicas, at.ID)
	}
	return ""
}

// playRollingUpdate: the new ReplicaSet and its first Pod come of the user's change.
func (s *traced) playRollingUpdate(t *testing.T) {
	a := s.arena(t, "traced-roll")
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	what := chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(postSet, sets),
		turnOf("replicaset-controller", sets), writeOf(postPod, "pods"))
	s.tells(t, func(attempt int) []tale {
		image := fmt.Sprintf("%s.%d", second, attempt)
		version := s.patch(t, a.Namespace, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"`+image+`"}]}}}}`)
		until(t, a, clustertest.RolledOut("web", image, 2))
		return []tale{{a.Namespace, "deploy/web", version, what}}
	}, nil)
	clear(t, a)
}

// playDeletion: what the garbage collector takes away after a Deployment, down to
// the Pods, comes of the user's deletion.
func (s *traced) playDeletion(t *testing.T) {
	a := s.arena(t, "traced-delete")
	what := chain("millrace-watcher: send EV_"+deploys,
		turnOf("garbage-collector-controller", deploys), writeOf("DELETE /apis/apps/v1/namespaces/{namespace}/replicasets/{name}", sets),
		turnOf("garbage-collector-controller", sets+" x2"), writeOf("DELETE /api/v1/namespaces/{namespace}/pods/{name}", "pods"))
	s.tells(t, func(int) []tale {
		must(t, a.Deploy(t.Context(), "web", first, 2))
		until(t, a, clustertest.RolledOut("web", first, 2))
		clear(t, a)
		return []tale{{a.Namespace, "deploy/web", "", what}}
	}, nil)
}

// playNamespaceDeletion: what namespace-controller takes away comes of the user's
// deletion, through what it asked.
func (s *traced) playNamespaceDeletion(t *testing.T) {
	what := chain("millrace-watcher: send EV_namespaces",
		".. "+strings.TrimSpace(writeOf("DELETE /apis/apps/v1/namespaces/{namespace}/deployments/{name}", deploys)))
	s.tells(t, func(attempt int) []tale {
		a := s.arena(t, fmt.Sprint("traced-namespace-", attempt))
		must(t, a.Deploy(t.Context(), "web", first, 2))
		until(t, a, clustertest.RolledOut("web", first, 2))
		must(t, s.kube.CoreV1().Namespaces().Delete(t.Context(), a.Namespace, metav1.DeleteOptions{}))
		eventually(t, "the namespace goes", func() string {
			_, err := s.kube.CoreV1().Namespaces().Get(t.Context(), a.Namespace, metav1.GetOptions{})
			return gone(err)
		})
		return []tale{{"", "namespace/" + a.Namespace, "", "millrace-watcher: send EV_namespaces"}, {a.Namespace, "deploy/web", "", what}}
	}, nil)
}

// playFanOut: of the creates of 500 Pods, 50 are in the trace of the change that
// asked for them; each of the others has one of its own, which leads back to it.
func (s *traced) playFanOut(t *testing.T) {
	const pods, bound = 500, 50
	a := s.arena(t, "traced-fan-out")
	must(t, a.Deploy(t.Context(), "web", first, 0))
	until(t, a, clustertest.Available(1))
	jaeger, err := clustertest.AskJaeger(s.JaegerURL())
	must(t, err)
	begun := time.Now()
	what := chain("millrace-watcher: send EV_"+deploys,
		turnOf("deployment-controller", deploys), writeOf(putSet, sets),
		turnOf("replicaset-controller", sets), fmt.Sprintf("millrace-writer: %s x%d", postPod, bound))
	s.tells(t, func(attempt int) []tale {
		version := s.patch(t, a.Namespace, fmt.Sprintf(`{"spec":{"replicas":%d}}`, attempt*pods))
		until(t, a, clustertest.Created(attempt*pods))
		return []tale{{a.Namespace, "deploy/web", version, what}}
	}, func(told *clustertest.Trace) (missing string) {
		creates, back := map[string]bool{}, map[string]bool{}
		for span := range told.All() {
			if span.Name == postPod {
				creates[commandOf(span)] = true
			}
		}
		traces, err := jaeger.Find(t.Context(), "millrace-writer", postPod, begun, 10*pods)
		for _, own := range traces {
			root := own.Roots[0]
			if root.Name == postPod && len(root.Links) > 0 && root.Links[0].Trace == told.ID {
				back[commandOf(root)] = true
			}
		}
		if len(creates) != bound || len(back) != pods-bound {
			return fmt.Sprintf("%d creates are in it, want %d, and %d others lead back to it, want %d (%s)", len(creates), bound, len(back), pods-bound, ask(err))
		}
		return ""
	})
}

// commandOf is the command behind a request, which may be sent more than once.
func commandOf(request *clustertest.Span) string {
	parts := strings.Split(request.Attributes["k8s.audit_id"], ".")
	return strings.Join(parts[:min(3, len(parts))], ".")
}
