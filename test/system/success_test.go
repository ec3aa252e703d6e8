package system

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/evidence"
)

var (
	successRounds   = flag.Int("success.rounds", 5, "rounds of twelve Jobs with a success policy")
	successKilled   = flag.Int("success.killed", 5, "in each how many-th round processes are killed; 0: in none")
	successSeed     = flag.Uint64("success.seed", 1, "seed of what is killed, and when")
	successEvidence = flag.String("success.evidence", "", "file to which the figures are written; empty: none")
)

// successes are the figures of a run of TestASuccessPolicyIsKept.
type successes struct {
	Commit   string `json:"commit"`
	Seed     uint64 `json:"seed"`
	Rounds   int    `json:"rounds"`
	Kills    int    `json:"kills"` // of reconcilers and writers
	Jobs     int    `json:"jobs"`
	Complete int    `json:"complete"`
	Failed   int    `json:"failed"`
	Pods     int    `json:"podsCountedAsFailures"`
	Longest  string `json:"longestRound"`
}

// TestASuccessPolicyIsKept runs twelve Jobs at a time with ten pods each. The first pod decides, and all
// succeed within half a second of each other: each Job completes, and no pod that it deletes counts as a
// failure, even while reconcilers and writers are killed. A hundred rounds, with kills in every second one:
//
//	go test ./test/system -run TestASuccessPolicyIsKept -timeout 3h -args \
//	  -success.rounds=100 -success.killed=2 -success.evidence=$PWD/docs/evidence/success-policy.json
func TestASuccessPolicyIsKept(t *testing.T) {
	s := here(t)
	m := s.separate(t, 2, s.credentials())
	const namespace = "successes"
	s.arena(t, namespace)
	s.abandon(t, namespace)
	commit, err := evidence.Commit(t.Context())
	must(t, err)
	found := successes{Commit: commit, Seed: *successSeed}
	random, longest := rand.New(rand.NewPCG(*successSeed, 16)), time.Duration(0)
	defer func() { t.Logf("%+v", found) }()
	for n := range *successRounds {
		begun := time.Now()
		s.leaders(t, namespace)
		played := make(chan struct{})
		go func() {
			defer close(played)
			s.succeed(t, namespace)
		}()
		if *successKilled > 0 && n%*successKilled == *successKilled-1 {
			found.Kills += m.killSome(t, random)
		}
		<-played
		for _, job := range s.jobsEnded(t, namespace) {
			found.Jobs++
			found.Pods += int(job.Status.Failed)
			if holds(job, batchv1.JobComplete) {
				found.Complete++
			} else {
				found.Failed++
			}
			if job.Status.Failed > 0 || !holds(job, batchv1.JobComplete) {
				t.Errorf("round %d: the Job %s has the status %+v, want it complete without a failed pod", n, job.Name, job.Status)
			}
		}
		longest = max(longest, time.Since(begun))
		found.Rounds, found.Longest = n+1, longest.Round(time.Millisecond).String()
		found.write(t)
		s.clearJobs(t, namespace)
		for _, p := range slices.Concat(m.services["reconcilers"], m.services["writer"]) {
			p.ready(t) // the replacements of the last round
		}
	}
}

// write writes the figures so far to the file that the flag names.
func (f successes) write(t *testing.T) {
	t.Helper()
	if *successEvidence == "" {
		return
	}
	must(t, evidence.Write(t.Context(), *successEvidence, f))
}

// leaders creates the Jobs, all at once.
func (s *site) leaders(t *testing.T, namespace string) {
	t.Helper()
	pods, none, indexed, first := int32(10), int32(0), batchv1.IndexedCompletion, "0"
	var wg sync.WaitGroup
	failures := make([]error, 12)
	for n := range failures {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("lead-%d", n)}, Spec: batchv1.JobSpec{
			Completions: &pods, Parallelism: &pods, BackoffLimit: &none, CompletionMode: &indexed,
			SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &first}}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
				{Name: "c", Image: "lead:1", Command: []string{"serve"}},
			}}},
		}}
		wg.Go(func() {
			_, failures[n] = s.kube.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
		})
	}
	wg.Wait()
	for _, err := range failures {
		must(t, err)
	}
}

// succeed acts as the nodes: as soon as the pods of a Job run, the second one succeeds and is reported, right
// after it the deciding one, and all others within half a second. A pod that was deleted before does not
// succeed.
func (s *site) succeed(t *testing.T, namespace string) {
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			pods := s.running(t, namespace, fmt.Sprintf("lead-%d", n))
			if pods == nil {
				return
			}
			for place, index := range []int{1, 0, 2, 3, 4, 5, 6, 7, 8, 9} {
				if place == 2 {
					rest := time.NewTimer(400 * time.Millisecond) // how long the other pods continue to work
					<-rest.C
				}
				_, err := s.kube.CoreV1().Pods(namespace).Patch(t.Context(), pods[strconv.Itoa(index)], types.MergePatchType,
					[]byte(`{"status":{"phase":"Succeeded","conditions":null}}`), metav1.PatchOptions{}, "status")
				if err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("set the phase of a pod to Succeeded: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// running waits until all pods of a Job run, and returns their names by index; nil on a time-out.
func (s *site) running(t *testing.T, namespace, job string) map[string]string {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for begun := time.Now(); time.Since(begun) < patience; <-again.C {
		list, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
		if err != nil {
			continue
		}
		pods := map[string]string{}
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				pods[p.Annotations[batchv1.JobCompletionIndexAnnotation]] = p.Name
			}
		}
		if len(pods) == 10 {
			return pods
		}
	}
	t.Errorf("the Job %s does not run its 10 pods in time", job)
	return nil
}

// killSome kills one of the reconcilers and one of the writers, each at a random time in the second in which
// the Jobs run, and starts a replacement for each.
func (m *apart) killSome(t *testing.T, random *rand.Rand) (killed int) {
	t.Helper()
	for _, name := range []string{"reconcilers", "writer"} {
		all := m.services[name]
		victim := all[random.IntN(len(all))]
		moment := time.NewTimer(time.Duration(random.IntN(500)) * time.Millisecond)
		<-moment.C
		victim.kill(t)
		m.forget(name, victim)
		m.add(name)
		killed++
	}
	return killed
}

// jobsEnded waits until each Job has ended, and returns the Jobs.
func (s *site) jobsEnded(t *testing.T, namespace string) (jobs []batchv1.Job) {
	t.Helper()
	within(t, patience, "each Job has ended", func() string {
		list, err := s.kube.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		jobs = list.Items
		for _, job := range jobs {
			if !holds(job, batchv1.JobComplete) && !holds(job, batchv1.JobFailed) {
				return fmt.Sprintf("%s says %+v", job.Name, job.Status)
			}
		}
		return ""
	})
	return jobs
}

// clearJobs deletes the Jobs and waits until their pods are deleted, too.
func (s *site) clearJobs(t *testing.T, namespace string) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	must(t, s.kube.BatchV1().Jobs(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}))
	within(t, patience, "nothing is left of the Jobs", func() string {
		pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || len(pods.Items) > 0 {
			return fmt.Sprintf("there are pods (%v)", err)
		}
		return ""
	})
}

func holds(job batchv1.Job, what batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == what && c.Status == corev1.ConditionTrue
	})
}
