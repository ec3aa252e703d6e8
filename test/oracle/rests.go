package oracle

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	quotas "github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
)

// gcPeriods is several of upstream's intervals between searches for pods to end.
const gcPeriods = 3 * time.Minute

// Controllers that run undisturbed on an API server that refuses some of their writes.
var (
	CronJobAtRest = Rest{Theirs: CronJob.Theirs, Ours: CronJob.Ours, Kinds: served(kinds.CronJobs.Kind, kinds.Jobs.Kind), Lines: fairCronJobEnds}
	PodGCAtRest   = Rest{Theirs: PodGC.Theirs, Ours: PodGC.Ours, Kinds: served(kinds.Nodes.Kind, kinds.Pods.Kind), Long: gcPeriods}
	// EndedPodsAtRest is the same controller, with a limit for ended pods.
	EndedPodsAtRest       = Rest{Theirs: EndedPods.Theirs, Ours: EndedPods.Ours, Kinds: served(kinds.Nodes.Kind, kinds.Pods.Kind), Long: gcPeriods}
	EphemeralVolumeAtRest = Rest{Theirs: EphemeralVolume.Theirs, Ours: EphemeralVolume.Ours, Kinds: served(kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind)}

	JobAtRest = Rest{Theirs: Job.Theirs, Ours: Job.Ours, Kinds: served(kinds.Jobs.Kind, kinds.Pods.Kind), Fair: fairJobEnds}

	EndpointsAtRest     = Rest{Theirs: Endpoints.Theirs, Ours: Endpoints.Ours, Kinds: served(kinds.Services.Kind, kinds.Pods.Kind, kinds.Endpoints.Kind), Lines: fairEndpointsEnds}
	EndpointSliceAtRest = fairAmongSlices(Rest{Theirs: EndpointSlice.Theirs, Ours: EndpointSlice.Ours, Kinds: served(kinds.Services.Kind, kinds.Nodes.Kind, kinds.Pods.Kind, kinds.EndpointSlices.Kind)})
	// QuotaAtRest runs for less time than any pod needs to end.
	QuotaAtRest  = Rest{Theirs: buildQuotas, Ours: quotas.New(quotas.Config{}), Kinds: typed, Long: 15 * time.Second, Picture: quotaPicture}
	BudgetAtRest = Rest{Theirs: buildBudgets, Ours: disruption.Controller, Kinds: served(kinds.PodDisruptionBudgets.Kind, kinds.Deployments.Kind, kinds.ReplicaSets.Kind,
		kinds.StatefulSets.Kind, kinds.ReplicationControllers.Kind, kinds.Pods.Kind), Picture: budgetPicture, Lines: fairBudgetEnds}
	MirrorsAtRest = fairAmongSlices(Rest{Theirs: EndpointSliceMirroring.Theirs, Ours: EndpointSliceMirroring.Ours, Kinds: served(kinds.Services.Kind, kinds.Endpoints.Kind, kinds.EndpointSlices.Kind), Chance: overAnother})
)

// Controllers that look before they write, and others of few kinds.
var (
	GroupProtectionAtRest = Rest{Theirs: GroupProtection.Theirs, Ours: GroupProtection.Ours, Kinds: served(kinds.PodGroups.Kind, kinds.Pods.Kind), Door: looking}
	ServiceCIDRsAtRest    = Rest{Theirs: ServiceCIDRs.Theirs, Ours: ServiceCIDRs.Ours, Kinds: served(kinds.ServiceCIDRs.Kind, kinds.IPAddresses.Kind), Door: looking}
	TokensAtRest          = Rest{Theirs: TokenCleaner.Theirs, Ours: TokenCleaner.Ours, Kinds: served(kinds.Secrets.Kind), Long: 70 * time.Minute, Shown: partly, Door: looking, Spared: tokensSpared}
	ClassProtectionAtRest = Rest{Theirs: ClassProtection.Theirs, Ours: ClassProtection.Ours, Kinds: served(kinds.VolumeAttributesClasses.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind)}
)

// partly shows the metadata of an object.
func partly(k kinds.Kind, obj metav1.Object) metav1.Object { return metadataOf(k, obj).(metav1.Object) }

// tokensSpared lets upstream delete tokens without refusals, because it does not retry before a token
// changes.
func tokensSpared(r Refusal) Refusal {
	if r.Times > 0 && r.Times < 1<<30 {
		Uses("token-tried-again")
		r.Times = 0
	}
	return r
}

// fairAmongSlices makes [fairSliceEnds] compare the ends of controllers of slices.
func fairAmongSlices(rest Rest) Rest {
	rest.Fair = fairSliceEnds(rest)
	return rest
}

func served(all ...kinds.Kind) []kinds.Kind { return all }

// fairCronJobEnds leaves out our Event that the name of a run was taken.
func fairCronJobEnds(refusal Refusal, theirs, ours []string) ([]string, []string) {
	if refusal.Answer.Reason != string(metav1.StatusReasonAlreadyExists) {
		return theirs, ours
	}
	return theirs, letLines("told-of-taken-name", ours, func(line string) string {
		if strings.Contains(line, " FailedCreate ") {
			return ""
		}
		return line
	})
}

// fairEndpointsEnds leaves out the trigger time of a change: upstream remembers the time of a change that it
// has seen and not published.
func fairEndpointsEnds(_ Refusal, theirs, ours []string) ([]string, []string) {
	return letLines("remembered-times", theirs, sinceEver), relined(ours, sinceEver)
}

// sinceNote matches the trigger time annotation of published objects.
var sinceNote = regexp.MustCompile(`("annotations":\{)?"` + regexp.QuoteMeta(corev1.EndpointsLastChangeTriggerTime) + `":"[^"]*"(\},)?,?`)

func sinceEver(line string) string { return sinceNote.ReplaceAllString(line, "") }

// letLines counts a use of an exemption if the lines have changed.
func letLines(id string, lines []string, as func(string) string) []string {
	after := relined(lines, as)
	if !slices.Equal(lines, after) {
		Uses(id)
	}
	return after
}

// relined are converted lines, without those that become empty.
func relined(lines []string, as func(string) string) (out []string) {
	for _, line := range lines {
		if line = as(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
