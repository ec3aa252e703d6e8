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
	repeats int // of all scenarios so far
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

// trace is the trace of an object's newest change, or of the change to a version, in the output of `millrace
// trace`; the error is its message if there is none.
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

// mostRepeats bounds the repeats of all scenarios together: a scenario is repeated if its trace lacks
// something and a service reports why. On an overloaded machine the watcher may see a change of ours so long
// before the writer's outcome that it begins a trace of its own, and counts that; and spans may not reach the
// collector in time, which every service counts. If nothing was missed or lost, the first trace must be
// complete.
const mostRepeats = 2

// missed are the counts of missed causes and lost spans so far, from the services' metrics.
func (s *traced) missed(t *testing.T) string {
	t.Helper()
	counts := regexp.MustCompile(`(?m)^(millrace_watcher_missed_causes_total\S*|millrace_trace_spans_total\{result="(failed|dropped)"\}) .*$`)
	var all []string
	for _, service := range []string{"watcher", "reconcilers", "writer"} {
		code, page := s.services[service][0].get(t, "/metrics")
		if code != http.StatusOK {
			t.Fatalf("GET /metrics of the %s is answered %d: %s", service, code, page)
		}
		for _, line := range counts.FindAllString(page, -1) {
			all = append(all, service+": "+line)
		}
	}
	return strings.Join(all, "\n")
}

// tale is what the trace of a version of an object must have, with every span in its place. An empty version
// means the newest one.
type tale struct{ namespace, object, version, what string }

// tells runs play until no tale lacks anything. play returns the tales; behind, which may be nil, returns
// what is missing behind the trace of the first one.
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
			t.Fatalf("in attempt %d, after %d repeats of all stories, something is missing: %s; the counters of missed causes and lost spans are\n%s", attempt, s.repeats, missing, missed)
		}
		s.repeats++
		t.Logf("once more, the %d. of at most %d repeats: %s; missed and lost were\n%s", s.repeats, mostRepeats, missing, missed)
	}
}

// lacks returns the trace of a tale, and what it lacks.
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

// patiently polls until nothing is missing or the bound is over; it returns what is still missing.
func patiently(bound time.Duration, holds func() (missing string)) (missing string) {
	for end := time.Now().Add(bound); ; {
		if missing = holds(); missing == "" || time.Now().After(end) {
			return missing
		}
		<-time.After(200 * time.Millisecond)
	}
}

// TestTraces: a user's action is one trace, through watcher, reconcilers, writer, API server and etcd, to all
// of its effects.
func TestTraces(t *testing.T) {
	s := startTraced(t)
	t.Run("scale", s.playScale)
	t.Run("rolling update", s.playRollingUpdate)
	t.Run("deletion", s.playDeletion)
	t.Run("namespace", s.playNamespaceDeletion)
	t.Run("fan-out", s.playFanOut) // the last, because it does not wait until all its Pods are deleted
	t.Logf("%d of at most %d repeats", s.repeats, mostRepeats)
}

// aTurn has the spans of every turn with commands, by controller and by the kind whose change caused the
// turn.
const aTurn = `
millrace-reconcilers: process EV_%[2]s
  millrace-reconcilers: reconcile %[1]s
    millrace-reconcilers: send TURN_%[1]s
      millrace-writer: process TURN_%[1]s`

// aWrite has the spans of every request of the writer: those of the API server and etcd, and the resulting
// change.
const aWrite = `
millrace-writer: %[1]s
  apiserver: *
    .. etcd: etcdserverpb.KV/Txn
  millrace-watcher: send EV_%[2]s`

// chain nests trees: each below the last line of the one before.
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

// below nests a tree below the root of another one.
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

// runs are the changes of a created Pod: the scheduler binds it, and the kubelet reports its status.
const runs = `
millrace-watcher: send EV_pods
  .. millrace-watcher: send EV_pods`

// playScale: from the change of one number to the running Pods, and to the Deployment's status. The test
// leaves open which turn reports: if a change of a Pod has been folded before its ticket arrives, the turn of
// an earlier change of the same trace answers it.
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

// patch changes the Deployment web, and returns the resulting version.
func (s *traced) patch(t *testing.T, namespace, change string) (version string) {
	t.Helper()
	d, err := s.kube.AppsV1().Deployments(namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(change), metav1.PatchOptions{})
	must(t, err)
	return d.ResourceVersion
}

// lastsUntilRunning: a trace has the last versions, in which they run, of so many Pods of a namespace.
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

// lastsUntilReported: a trace has the last version of the Deployment web, which reports that all its Pods
// run.
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

// playRollingUpdate: the user's change causes the new ReplicaSet and its first Pod.
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

// playDeletion: the user's deletion of a Deployment causes everything that the garbage collector deletes,
// down to the Pods.
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

// playNamespaceDeletion: the user's deletion causes the deletes of namespace-controller, through its
// questions.
func (s *traced) playNamespaceDeletion(t *testing.T) {
	what := chain("millrace-watcher: send EV_namespaces",
		".. "+strings.TrimSpace(writeOf("DELETE /apis/apps/v1/namespaces/{namespace}/deployments/{name}", deploys)))
	s.tells(t, func(attempt int) []tale {
		a := s.arena(t, fmt.Sprint("traced-namespace-", attempt))
		must(t, a.Deploy(t.Context(), "web", first, 2))
		until(t, a, clustertest.RolledOut("web", first, 2))
		must(t, s.kube.CoreV1().Namespaces().Delete(t.Context(), a.Namespace, metav1.DeleteOptions{}))
		within(t, patience, "the namespace goes", func() string {
			_, err := s.kube.CoreV1().Namespaces().Get(t.Context(), a.Namespace, metav1.GetOptions{})
			return gone(err)
		})
		return []tale{{"", "namespace/" + a.Namespace, "", "millrace-watcher: send EV_namespaces"}, {a.Namespace, "deploy/web", "", what}}
	}, nil)
}

// playFanOut: of the creates of 500 Pods, 50 are in the trace of the change that caused them; each of the
// others has a trace of its own, with a link back.
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

// commandOf is the command of a request; a command may send several.
func commandOf(request *clustertest.Span) string {
	parts := strings.Split(request.Attributes["k8s.audit_id"], ".")
	return strings.Join(parts[:min(3, len(parts))], ".")
}
