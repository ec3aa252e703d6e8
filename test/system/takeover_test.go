package system

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/cmd/evidence"
)

var (
	takeovers        = flag.Int("takeover.rounds", 1, "takeovers, each with a giveback")
	takeoverEvidence = flag.String("takeover.evidence", "", "file to which the figures are written; empty: none")
)

// movesConfig is what kube-controller-manager and Millrace are started with.
const movesConfig = `apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: millrace-migration
controllerLeaders:
- {name: replicaset-controller, component: "*"}
`

// moves are the figures of one form of TestTakeover.
type moves struct {
	Takeovers  int      `json:"takeovers"`
	Givebacks  int      `json:"givebacks"`
	Created    int      `json:"podsCreated"`
	Deleted    int      `json:"podsDeletedByUsers"`
	Surplus    int      `json:"podsDeletedByControllers"` // what was created twice
	Lost       int      `json:"podsLackingAtTheEnd"`
	Overlaps   int      `json:"overlaps"` // changes of the acting side that no move explains
	Takeover   []string `json:"pausesOfTakeovers"`
	Giveback   []string `json:"pausesOfGivebacks"`
	LongestOfT string   `json:"longestPauseOfTakeovers"`
	LongestOfG string   `json:"longestPauseOfGivebacks"`
}

// TestTakeover moves replicaset-controller from the real kube-controller-manager to Millrace and back, while
// users delete its pods all the time: the two never both act, no pod is created twice, and none is lost.
// How long no pod is created is measured; election.TestTheMoveIsShort bounds it on a clock of its own.
// Fifty takeovers, half of them in one process and half with services on one bus:
//
//	go test ./test/system -run 'TestTakeover$' -timeout 3h -args -takeover.rounds=25 -takeover.evidence=$PWD/docs/evidence/takeovers.json
func TestTakeover(t *testing.T) {
	s := here(t)
	commit, err := evidence.Commit(t.Context())
	must(t, err)
	config := filepath.Join(t.TempDir(), "migration.yaml")
	must(t, os.WriteFile(config, []byte(movesConfig), 0o600))
	s.mayLead(t, "millrace-migration", clustertest.Millrace, clustertest.Writer, clustertest.Watcher)
	flags := []string{"--controllers=replicaset-controller", "--enable-leader-migration", "--leader-migration-config=" + config}
	s.supervised(t)
	found := struct {
		Commit     string `json:"commit"`
		OneProcess moves  `json:"oneProcess"`
		Services   moves  `json:"servicesOnOneBus"`
	}{Commit: commit}
	t.Run("a writer without rights", func(t *testing.T) {
		m := s.run(t, append(slices.Clone(flags), "--kubeconfig="+s.Kubeconfig(clustertest.Watcher))...)
		within(t, patience, "a takeover is refused", func() string {
			if out, err := s.move(t, m.nats, "takeover", "--plan"); err == nil || !strings.Contains(out, "refused: Millrace could not run the controllers") {
				return out
			}
			return ""
		})
	})
	t.Run("one process", func(t *testing.T) {
		m := s.run(t, flags...)
		found.OneProcess = s.moves(t, "takeover", m.nats, func() {})
	})
	t.Run("services on one bus", func(t *testing.T) {
		m := s.unstarted(t, s.credentials(), time.Now())
		m.startBus()
		for range 2 {
			for _, name := range serviceNames {
				m.addAt(name, m.nats, flags...)
			}
		}
		for _, name := range serviceNames {
			for _, replica := range m.services[name] {
				replica.ready(t)
			}
		}
		found.Services = s.moves(t, "takeover-services", m.nats, func() { m.replaceHolder(t, flags) })
	})
	if *takeoverEvidence != "" {
		must(t, evidence.Write(t.Context(), *takeoverEvidence, found))
	}
}

// moves moves the controller as often as is asked for. Once, in between, restart restarts what holds the
// Lease.
func (s *site) moves(t *testing.T, namespace, nats string, restart func()) (found moves) {
	t.Helper()
	s.arena(t, namespace)
	s.abandon(t, namespace)
	load := s.churn(t, namespace)
	defer func() { t.Logf("%+v", found) }()
	within(t, patience, "a takeover is refused before the shadow was compared for an hour", func() string {
		if out, err := s.move(t, nats, "takeover", "--agreed-for=1h"); err == nil || !strings.Contains(out, "refused: replicaset-controller: its shadow") {
			return out
		}
		return ""
	})
	within(t, patience, "the plan is accepted once the shadow agrees", func() string {
		out, err := s.move(t, nats, "takeover", "--agreed-for=5s", "--agreed-writes=10", "--plan")
		if err != nil {
			return out
		}
		t.Log(out)
		return ""
	})
	for round := range *takeovers {
		for _, to := range []string{"takeover", "giveback"} {
			args := []string{}
			if to == "takeover" {
				args = []string{"--agreed-for=5s", "--agreed-writes=0"}
			}
			if out, err := s.move(t, nats, to, args...); err != nil {
				t.Fatalf("millrace %s: %v\n%s", to, err, out)
			}
			s.actsAnew(t, namespace, to, time.Now())
			if to == "takeover" && round == 0 {
				restart()
				s.actsAnew(t, namespace, to, time.Now())
			}
		}
		found.Takeovers++
		found.Givebacks++
	}
	load.stop()
	within(t, patience, "all pods are there", func() string { return load.missing(t) })
	found.judge(t, s, namespace, load)
	return found
}

// replaceHolder stops the writer that holds the Lease, so that another one goes on, and starts one in its
// place.
func (m *apart) replaceHolder(t *testing.T, flags []string) {
	t.Helper()
	holder := func() *service {
		for _, p := range m.services["writer"] {
			if _, metrics := p.get(t, "/metrics"); strings.Contains(metrics, "millrace_writer_active{controller=\"replicaset-controller\"} 1\n") {
				return p
			}
		}
		return nil
	}
	first := holder()
	if first == nil {
		t.Fatal("no writer says that it carries out the turns")
	}
	first.stop(t)
	m.forget("writer", first)
	m.addAt("writer", m.nats, flags...).ready(t)
	within(t, patience, "another writer has the turns", func() string {
		if holder() == nil {
			return "none has"
		}
		return ""
	})
}

// mayLead gives Millrace the right to the Lease, by its own roles, and kube-controller-manager, as
// docs/takeover.md does.
func (s *site) mayLead(t *testing.T, lease string, users ...clustertest.User) {
	t.Helper()
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	for _, user := range users {
		prefix := lease + "-" + string(user)
		roles, err := exec.CommandContext(t.Context(), s.binary, "rbac", "--of=leader", "--lease="+lease, "--user="+string(user), "--watchers=1", "--prefix="+prefix).Output()
		must(t, err)
		file := filepath.Join(t.TempDir(), "roles.yaml")
		must(t, os.WriteFile(file, roles, 0o600))
		s.kubectl(t, "apply", "-f", file)
	}
	s.kubectl(t, "create", "role", lease, "--namespace=kube-system", "--verb=get,update", "--resource=leases", "--resource-name="+lease)
	s.kubectl(t, "create", "rolebinding", lease, "--namespace=kube-system", "--role="+lease, "--user=system:kube-controller-manager")
	t.Cleanup(func() {
		ctx, rbac := context.WithoutCancel(t.Context()), s.kube.RbacV1()
		must(t, rbac.Roles("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}))
		must(t, rbac.RoleBindings("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}))
	})
}

// move runs a command as a person.
func (s *site) move(t *testing.T, nats, verb string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{verb, "replicaset-controller", "--kubeconfig=" + s.Kubeconfig(clustertest.Admin), "--because=a test"}, args...)
	if verb == "takeover" {
		args = append(args, "--nats-url=nats://"+nats)
	}
	out, err := exec.CommandContext(t.Context(), s.binary, args...).CombinedOutput()
	return string(out), err
}

// supervised runs a kube-controller-manager for the controller that moves, beside one for the others, as
// docs/takeover.md does, and starts it again whenever it ends.
func (s *site) supervised(t *testing.T) {
	t.Helper()
	rest, err := s.StartKCM(t.Context(), 100, clustertest.KCM{Controllers: "*,-replicaset-controller", Args: []string{"--leader-elect=true"}})
	must(t, err)
	t.Cleanup(func() { must(t, rest.Stop()) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it removes the namespace at the end
	start := func(life int) *clustertest.Process {
		p, err := s.StartKCM(ctx, life, clustertest.KCM{
			Controllers: "replicaset-controller", Args: []string{"--leader-elect=true", "--leader-elect-resource-name=millrace-migration"},
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return p
	}
	p, ended := start(0), make(chan struct{})
	go func() {
		defer close(ended)
		for life := 1; p != nil; life++ {
			select {
			case <-p.Ended():
				p = start(life)
			case <-ctx.Done():
				if err := p.Stop(); err != nil {
					t.Error(err)
				}
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() && p != nil {
			t.Logf("the end of the log of kube-controller-manager:\n%s", tail(p.Log))
		}
	})
}

// churning is a ReplicaSet whose pods users delete all the time.
type churning struct {
	*site
	namespace string
	end       context.CancelFunc
	ended     chan struct{}
	mu        sync.Mutex
	deleted   int
}

const churned = 5 // its pods

func (s *site) churn(t *testing.T, namespace string) *churning {
	t.Helper()
	pods, labels := int32(churned), map[string]string{"app": "web"}
	_, err := s.kube.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	ctx, end := context.WithCancel(t.Context())
	c := &churning{site: s, namespace: namespace, end: end, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			c.deleteOne(ctx)
			time.Sleep(150 * time.Millisecond)
		}
	}()
	t.Cleanup(c.stop)
	return c
}

func (c *churning) deleteOne(ctx context.Context) {
	list, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	now := int64(0)
	whole := context.WithoutCancel(ctx) // a delete that is broken off may have happened, and would not count
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && c.kube.CoreV1().Pods(c.namespace).Delete(whole, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}) == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.deleted++
			return
		}
	}
}

func (c *churning) stop() { c.end(); <-c.ended }

// missing is "" once all pods of the ReplicaSet are there.
func (c *churning) missing(t *testing.T) string {
	list, err := c.kube.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != churned {
		return fmt.Sprintf("%d pods, %v", len(list.Items), err)
	}
	return ""
}

// madePod is a pod that a controller has created or deleted.
type madePod struct {
	at                time.Time
	millrace, deletes bool
}

// pods are the pods of a namespace that a replicaset-controller has created and deleted, by the audit log.
func (s *site) pods(t *testing.T, namespace string) (all []madePod) {
	t.Helper()
	for line := range bytes.Lines([]byte(s.audited(t))) {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }

			ObjectRef      *struct{ Resource, Namespace, Subresource string }
			ResponseStatus struct{ Code int }
			StageTimestamp metav1.MicroTime
		}
		if json.Unmarshal(line, &e) != nil || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.ObjectRef.Subresource != "" || e.ObjectRef.Namespace != namespace || e.ResponseStatus.Code >= 300 {
			continue
		}
		millrace := strings.HasPrefix(e.UserAgent, "millrace-writer/replicaset-controller")
		kcm := strings.HasPrefix(e.UserAgent, "kube-controller-manager/") && strings.HasSuffix(e.User.Username, ":replicaset-controller")
		if millrace || kcm {
			all = append(all, madePod{e.StageTimestamp.Time, millrace, e.Verb != "create"})
		}
	}
	slices.SortStableFunc(all, func(a, b madePod) int { return a.at.Compare(b.at) })
	return all
}

// actsAnew waits until the side to which the controller has moved has created pods since a time.
func (s *site) actsAnew(t *testing.T, namespace, to string, since time.Time) {
	t.Helper()
	within(t, patience, "pods are created after a "+to, func() string {
		all := s.pods(t, namespace)
		all = slices.DeleteFunc(all, func(p madePod) bool { return p.at.Before(since) })
		if n := len(all); n < 3 || slices.ContainsFunc(all[n-3:], func(p madePod) bool { return p.millrace != (to == "takeover") }) {
			return "not yet"
		}
		return ""
	})
}

// judge fills in what the audit log says.
func (f *moves) judge(t *testing.T, s *site, namespace string, load *churning) {
	t.Helper()
	all := s.pods(t, namespace)
	f.Deleted = load.deleted
	var longest [2]time.Duration
	changes := 0
	for i, p := range all {
		if p.deletes {
			f.Surplus++
			continue
		}
		f.Created++
		if i == 0 || p.millrace == all[i-1].millrace {
			continue
		}
		changes++
		pause, of := p.at.Sub(all[i-1].at), 1
		if text := pause.Round(10 * time.Millisecond).String(); p.millrace {
			f.Takeover, of = append(f.Takeover, text), 0
		} else {
			f.Giveback = append(f.Giveback, text)
		}
		longest[of] = max(longest[of], pause)
	}
	f.LongestOfT, f.LongestOfG = longest[0].String(), longest[1].String()
	f.Overlaps, f.Lost = changes-f.Takeovers-f.Givebacks, max(0, f.Deleted+churned-f.Created)
	if f.Overlaps != 0 || f.Surplus != 0 || f.Created != f.Deleted+churned {
		t.Errorf("the acting side changed %d times in %d moves, want once in each; %d pods were created for %d that users deleted, want one for each, and controllers deleted %d, want none", changes, f.Takeovers+f.Givebacks, f.Created, f.Deleted, f.Surplus)
	}
}
