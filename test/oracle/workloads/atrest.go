package workloads

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// gcPeriods is several of upstream's intervals between searches for pods to end.
const gcPeriods = 3 * time.Minute

// CronJobAtRest runs undisturbed on an API server that refuses some of its writes.
var CronJobAtRest = stage.Rest{Theirs: CronJob.Theirs, Ours: CronJob.Ours, Kinds: stage.Served(kinds.CronJobs.Kind, kinds.Jobs.Kind), Lines: fairCronJobEnds}

// PodGCAtRest runs undisturbed on an API server that refuses some of its writes.
var PodGCAtRest = stage.Rest{Theirs: PodGC.Theirs, Ours: PodGC.Ours, Kinds: stage.Served(kinds.Nodes.Kind, kinds.Pods.Kind), Long: gcPeriods}

// EndedPodsAtRest is the same controller, with a limit for ended pods.
var EndedPodsAtRest = stage.Rest{Theirs: EndedPods.Theirs, Ours: EndedPods.Ours, Kinds: stage.Served(kinds.Nodes.Kind, kinds.Pods.Kind), Long: gcPeriods}

// JobAtRest runs undisturbed on an API server that refuses some of its writes.
var JobAtRest = stage.Rest{Theirs: Job.Theirs, Ours: Job.Ours, Kinds: stage.Served(kinds.Jobs.Kind, kinds.Pods.Kind), Fair: fairJobEnds}

// GroupProtectionAtRest runs undisturbed on an API server that refuses some of its writes.
var GroupProtectionAtRest = stage.Rest{Theirs: GroupProtection.Theirs, Ours: GroupProtection.Ours, Kinds: stage.Served(kinds.PodGroups.Kind, kinds.Pods.Kind), Door: stage.Look}

// fairCronJobEnds leaves out our Event that the name of a run was taken.
func fairCronJobEnds(refusal stage.Refusal, theirs, ours []string) ([]string, []string) {
	if refusal.Answer.Reason != string(metav1.StatusReasonAlreadyExists) {
		return theirs, ours
	}
	return theirs, exemption.LetLines("told-of-taken-name", ours, func(line string) string {
		if strings.Contains(line, " FailedCreate ") {
			return ""
		}
		return line
	})
}
