package takeover

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/election/leasetest"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
)

const lease = "moves"

// place is a Lease with which controllers move.
type place struct {
	*leasetest.Server
	*Client
	managers doctor.Managers
}

func newPlace() *place {
	p := &place{Server: leasetest.New()}
	p.Client = &Client{
		leases: p.Server, managers: func(context.Context) doctor.Managers { return p.managers },
		who: func(context.Context) (string, error) { return "alice", nil },
	}
	return p
}

// put stores the Lease, with a holder that renews it now.
func (p *place) put(t *testing.T, holder string, state election.State, controllers ...string) {
	t.Helper()
	l, err := p.Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		if l, err = p.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h, err := election.HandoverOf(l)
	if err == nil {
		err = election.Annotate(l, election.CandidateAnnotation, election.Candidate{ID: "millrace_a", Controllers: controllers, State: state, Took: h.Assigned.ID})
	}
	if l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, ptr.To[int32](15), ptr.To(metav1.NowMicro()); holder == "" {
		l.Spec.HolderIdentity = nil
	}
	if err == nil {
		_, err = p.Update(t.Context(), l, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shadow is a shadow that was compared for a while, in so many writes, of which some are unexplained.
func shadow(compared time.Duration, writes, differences int) Shadow {
	since := time.Now().Add(-compared)
	is := standing.Parity{Since: since, Unexplained: differences, Findings: map[report.Agreement]int{report.Agreed: writes - differences, report.Differs: differences}}
	return Shadow{Ever: is, Lately: is}
}

// TestWhichLeaseIsMeant: the named controllers are those that move with a Lease, no more and no less.
func TestWhichLeaseIsMeant(t *testing.T) {
	for says, names := range map[string][]string{
		"": {"b", "a"},
		"no Millrace process stands by for x, but for a, b, c": {"x"},
		"b moves with the same Lease":                          {"a"},
		"x does not move with the Lease moves, as a does":      {"a", "b", "x"},
		"no Millrace process stands by: start one":             nil,
	} {
		p := newPlace()
		for name, controllers := range map[string][]string{lease: {"a", "b"}, "zz": {"c"}, "kube-scheduler": nil} {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if controllers != nil && names != nil {
				if err := election.Annotate(l, election.CandidateAnnotation, election.Candidate{Controllers: controllers}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if names == nil {
			names = []string{"a"}
		}
		m, err := p.Find(t.Context(), names)
		if says == "" && (err != nil || m.Lease != lease) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v: %+v, %v, want %q", names, m, err, says)
		}
	}
}

// refusal is a state of things, and what a plan says about it.
type refusal struct {
	holder   string
	managers doctor.Managers
	wanted   Agreement
	shadow   func() Shadow
	off      bool
	problem  string // of the process that stands by
	refused  bool
	says     string
}

// TestWhatSpeaksAgainstATakeover: each condition refuses it, and the plan says which.
func TestWhatSpeaksAgainstATakeover(t *testing.T) {
	active := doctor.Managers{Lease: doctor.Lease{Holder: "node-1_x", Renewed: time.Unix(0, 0), For: time.Minute}, Now: time.Unix(1, 0)}
	runsIt, leavesIt := active, active
	runsIt.Pods = [][]string{{"kube-controller-manager", "--controllers=*"}}
	leavesIt.Pods = [][]string{{"kube-controller-manager", "--controllers=*,-replicaset-controller"}}
	wanted := Agreement{For: time.Hour, Writes: 20, Differences: 1}
	compared := func(d time.Duration, writes, differences int) func() Shadow {
		return func() Shadow { return shadow(d, writes, differences) }
	}
	well := compared(2*time.Hour, 20, 1)
	for name, c := range map[string]refusal{
		"all is well":            {holder: "node-1_x", shadow: well, says: "19 of 20 writes"},
		"and what will happen":   {holder: "node-1_x", shadow: well, says: "cannot renew it"},
		"and how to go back":     {holder: "node-1_x", shadow: well, says: "millrace giveback replicaset-controller"},
		"rights are missing":     {holder: "node-1_x", shadow: well, problem: "a right is missing", refused: true, says: "a right is missing"},
		"never compared":         {holder: "node-1_x", refused: true, says: "has not been compared yet"},
		"compared for a moment":  {holder: "node-1_x", shadow: compared(time.Minute, 20, 0), refused: true, says: "--agreed-for"},
		"compared in few writes": {holder: "node-1_x", shadow: compared(2*time.Hour, 19, 0), refused: true, says: "--agreed-writes"},
		"differences":            {holder: "node-1_x", shadow: compared(2*time.Hour, 50, 2), refused: true, says: "--accept-differences=2"},
		"the shadow is not asked": {
			holder: "node-1_x", wanted: Agreement{For: time.Hour}, says: "--agreed-writes=0",
		},
		"Millrace has it":              {holder: "millrace_a", says: "runs the controllers already"},
		"no KCM at all":                {shadow: well, says: "at once"},
		"a KCM leaves it out":          {managers: leavesIt, shadow: well, says: "at once"},
		"a KCM runs it":                {managers: runsIt, shadow: well, refused: true, says: "that holds the Lease"},
		"a KCM runs it, though denied": {managers: runsIt, shadow: well, off: true, refused: true, says: "that holds the Lease"},
		"a KCM with unknown flags":     {managers: active, shadow: well, refused: true, says: "--kcm-is-off"},
		"a KCM that is said to be off": {managers: active, shadow: well, off: true, says: "as you say"},
		"a Lease that cannot be read": {
			managers: doctor.Managers{Lease: doctor.Lease{Err: errors.New("forbidden")}}, shadow: well, refused: true, says: "forbidden",
		},
	} {
		if c.wanted.For == 0 {
			c.wanted = wanted
		}
		if c.shadow == nil {
			c.shadow = func() Shadow { return Shadow{} }
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.check) })
	}
}

func (c refusal) check(t *testing.T) {
	p := newPlace()
	p.managers = c.managers
	p.put(t, c.holder, election.Waiting, "replicaset-controller")
	renewing, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	defer func() { stop(); <-stopped }()
	go func() {
		defer close(stopped)
		for c.holder != "" && renewing.Err() == nil {
			p.put(t, c.holder, election.Waiting, "replicaset-controller")
			time.Sleep(2 * time.Second)
		}
	}()
	m, err := p.Find(t.Context(), []string{"replicaset-controller"})
	if err != nil {
		t.Fatal(err)
	}
	m.Candidate.Problem = c.problem
	plan, err := p.Plan(t.Context(), m, c.wanted, map[string]Shadow{"replicaset-controller": c.shadow()}, c.off)
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for _, step := range plan.Steps {
		said = said || strings.Contains(step.Text, c.says) && step.Refused == c.refused
	}
	if plan.Refused() != c.refused || !said {
		t.Errorf("refused: %t, want %t with %q: %+v", plan.Refused(), c.refused, c.says, plan.Steps)
	}
}

// TestAHolderLives: it renews the Lease, whatever its clock says. One that has died does not.
func TestAHolderLives(t *testing.T) {
	for _, renews := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlace()
			p.put(t, "node-1_x", election.Waiting, "a")
			time.Sleep(time.Hour) // an hour between the clocks looks the same
			if renews {
				go func() { time.Sleep(4 * time.Second); p.put(t, "node-1_x", election.Waiting, "a") }()
			}
			lives, err := p.live(t.Context(), lease)
			if lives != renews || err != nil {
				t.Errorf("a holder that renews the Lease (%t) lives: %t, %v", renews, lives, err)
			}
		})
	}
}

// TestAnAssignmentIsFollowed until Millrace acts, or kube-controller-manager has the Lease again.
func TestAnAssignmentIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		p.put(t, "node-1_x", election.Waiting, "a")
		a, err := p.Assign(t.Context(), lease, election.Millrace, "ticket 4711")
		if err != nil || a.By != "alice" || a.Because != "ticket 4711" || a.To != election.Millrace {
			t.Fatalf("the assignment is %+v, %v", a, err)
		}
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			p.put(t, "millrace_a", election.Taking, "a")
			time.Sleep(15 * time.Second)
			p.put(t, "millrace_a", election.Acting, "a")
		}()
		var told []string
		tell := func(text string) { told = append(told, text) }
		if err := p.FollowTakeover(t.Context(), lease, tell); err != nil || time.Since(began) < 16*time.Second || len(told) == 0 {
			t.Errorf("after %v it is done, %v, told %v", time.Since(began), err, told)
		}
		if a, err = p.Assign(t.Context(), lease, election.KCM, ""); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(3 * time.Second)
			p.put(t, "", election.Waiting, "a")
			time.Sleep(4 * time.Second)
			p.put(t, "node-1_y", election.Waiting, "a")
		}()
		if began = time.Now(); p.FollowGiveback(t.Context(), lease, tell) != nil || time.Since(began) < 7*time.Second {
			t.Errorf("given back after %v", time.Since(began))
		}
	})
}

// TestAnAssignmentThatDoesNotHappen: the error says how things stand.
func TestAnAssignmentThatDoesNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		p.put(t, "node-1_x", election.Waiting, "a")
		if _, err := p.Assign(t.Context(), lease, election.Millrace, ""); err != nil {
			t.Fatal(err)
		}
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		err := p.FollowTakeover(ctx, lease, func(string) {})
		if err == nil || !strings.Contains(err.Error(), `held by "node-1_x" and assigned to millrace`) || !strings.Contains(err.Error(), "stays assigned") {
			t.Errorf("the error is %v", err)
		}
		p.put(t, "", election.Waiting, "a")
		if err := p.FollowGiveback(t.Context(), lease, func(string) {}); err == nil || !strings.Contains(err.Error(), "nothing runs the controllers") {
			t.Errorf("where nothing takes the Lease: %v", err)
		}
	})
}
