package workloads

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	cronjobs "github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	jobs "github.com/millrace/millrace/services/reconcilers/controllers/job"
	ttl "github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/settle"
)

// Job is the job controller. It runs for six seconds, because it syncs one second after a pod has changed.
var Job = settle.Course{Theirs: buildJobs, Ours: jobs.Controller, Long: 6 * time.Second, Mask: blames}

// CronJob is the CronJob controller.
var CronJob = settle.Course{Theirs: buildCronJobs, Ours: cronjobs.Controller, Long: 2 * time.Second}

// TTLAfterFinished is the controller that deletes finished Jobs.
var TTLAfterFinished = settle.Course{Theirs: buildTTL, Ours: ttl.Controller, Long: 2 * time.Second}

// buildJobs makes upstream's job controller.
func buildJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	jm, err := job.NewController(ctx, c, kcm.OrderedPods{PodInformer: f.Core().V1().Pods()}, f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make the job controller: %w", err)
	}
	return func() { jm.Run(ctx, 1) }, nil
}

func buildCronJobs(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	p := newPatience()
	cm, err := cronjob.NewControllerV2(ctx, patientJobs{f.Batch().V1().Jobs(), p}, patientCronJobs{f.Batch().V1().CronJobs(), p}, c)
	if err != nil {
		return nil, fmt.Errorf("make the CronJob controller: %w", err)
	}
	return func() { cm.Run(ctx, 1) }, nil
}

func buildTTL(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	tc := ttlafterfinished.New(ctx, f.Batch().V1().Jobs(), c)
	return func() { tc.Run(ctx, 1) }, nil
}

// culprit matches the part of a message that names the blamed pod.
var culprit = regexp.MustCompile(`(Container \S+ for pod \S+ failed with exit code \d+|Pod \S+ has condition \w+) matching FailJob rule at index \d+`)

// blames removes the name of the blamed pod if that may be one that waited for adoption: upstream adopts and
// decides in one sync, and checks its own pods before those that it adopts. Ours decides when all pods are
// the Job's, in the order of their names.
func blames(world []runtime.Object, line string) string {
	if !slices.ContainsFunc(world, waits) {
		return line
	}
	if culprit.MatchString(line) {
		exemption.Uses("which-pod-is-blamed")
	}
	return culprit.ReplaceAllString(line, "a pod is blamed")
}

// waits reports whether an object is a failed pod without a controller.
func waits(obj runtime.Object) bool {
	p, ok := obj.(*corev1.Pod)
	return ok && p.Status.Phase == corev1.PodFailed && len(p.OwnerReferences) == 0
}
