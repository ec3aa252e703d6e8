package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// judgement judges a decision by the view that it rests on.
type judgement func(l *look, f findings)

// findings collects the violations of a turn.
type findings struct {
	guard *guard
	turn  string
}

func (f findings) breaks(rule, format string, args ...any) {
	f.guard.breaks(rule, "%s %s", f.turn, fmt.Sprintf(format, args...))
}

func (f findings) spares(e exception) { f.guard.spare(e) }

// judgements are the judgement of each controller that deletes something, and the kinds that it
// reads. A controller without one may delete nothing (guard.before).
var judgements = map[string]struct {
	judge judgement
	kinds []kinds.Name
}{
	"replicaset-controller":            {replicasJudged, []kinds.Name{kinds.Pods.Name}},
	"replicationcontroller-controller": {replicasJudged, []kinds.Name{kinds.Pods.Name}},
	"deployment-controller":            {deploymentJudged, []kinds.Name{kinds.ReplicaSets.Name}},
	"statefulset-controller":           {statefulSetJudged, []kinds.Name{kinds.Pods.Name}},
	"daemonset-controller":             {daemonSetJudged, []kinds.Name{kinds.Pods.Name, kinds.Nodes.Name}},
	"job-controller":                   {jobJudged, []kinds.Name{kinds.Pods.Name}},
	"cronjob-controller":               {cronJobJudged, []kinds.Name{kinds.Jobs.Name}},
	"endpoints-controller":             {endpointsJudged, []kinds.Name{kinds.Services.Name, kinds.Pods.Name}},
	"endpointslice-controller": {
		servedJudged, []kinds.Name{kinds.EndpointSlices.Name, kinds.Pods.Name},
	},
	"endpointslice-mirroring-controller": {
		slicesJudged("endpointslicemirroring-controller.k8s.io"), []kinds.Name{kinds.EndpointSlices.Name},
	},
	"serviceaccount-token-controller":  {tokenJudged, []kinds.Name{kinds.Secrets.Name, kinds.ServiceAccounts.Name}},
	"pod-garbage-collector-controller": {podJudged, []kinds.Name{kinds.Pods.Name, kinds.Nodes.Name}},
	"persistentvolume-attach-detach-controller": {
		attachingJudged, []kinds.Name{kinds.Pods.Name, kinds.PersistentVolumeClaims.Name},
	},
	"selinux-warning-controller": {
		warningsJudged, []kinds.Name{kinds.Pods.Name, kinds.PersistentVolumeClaims.Name, kinds.PersistentVolumes.Name, kinds.CSIDrivers.Name},
	},
	"resourcepoolstatusrequest-controller": {poolsJudged, []kinds.Name{kinds.ResourceSlices.Name, kinds.ResourceClaims.Name}},
	"disruption-controller": {
		budgetJudged, []kinds.Name{kinds.Pods.Name, kinds.ReplicaSets.Name, kinds.Deployments.Name},
	},
}

// judgedByEffect are the controllers whose deletes the guard judges just before they happen, by
// the real state, and the rules that judge them.
var judgedByEffect = map[string]string{
	"garbage-collector-controller":                   "I4, before",
	"namespace-controller":                           "I4, clears",
	"ttl-after-finished-controller":                  "I4, expires",
	"taint-eviction-controller":                      "F24, guest",
	"storageversion-garbage-collector-controller":    "A4, forgets",
	"legacy-serviceaccount-token-cleaner-controller": "A5, cleaned",
	"certificatesigningrequest-cleaner-controller":   "C2, answered",
}

// judge judges a turn of the write lane by the view that it was decided on.
func (g *guard) judge(t events.Turn, sequence uint64, l *look) {
	rule, judged := judgements[t.Controller]
	if !judged {
		return
	}
	if l == nil {
		g.spare(unknownLook)
		return
	}
	g.world.tally.Judged++
	rule.judge(l.in(t.Lane), findings{g, fmt.Sprintf("turn %d of %s %v (%s)", sequence, t.Controller, t.Key, t.Because)})
}

// asksFor is the most live pods or replicas that an object asks for; ok is false for one that
// asks for no number.
func asksFor(obj metav1.Object) (n int, ok bool) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		return int(*o.Spec.Replicas), true
	case *corev1.ReplicationController:
		return int(*o.Spec.Replicas), true
	case *appsv1.StatefulSet:
		return int(*o.Spec.Replicas), true
	case *appsv1.Deployment:
		return int(*o.Spec.Replicas) + surge(o), true
	case *batchv1.Job:
		return atOnce(o), true
	default:
		return 0, false
	}
}

// replicasJudged judges a ReplicaSet or a ReplicationController: it creates no surplus pod,
// deletes only surplus pods, and deletes no ready pod while it keeps one that is not ready.
//
// Upstream: pkg/controller, ActivePods and ActivePodsWithRanks; a pod that has no node, is
// pending, or is not ready, comes before any that is ready.
func replicasJudged(l *look, f findings) {
	asked, ok := asksFor(l.own)
	gone, created := l.deletes(kinds.Pods.Name), len(l.creates(kinds.Pods.Name))
	if !ok || len(gone)+created == 0 {
		return
	}
	mine := l.live()
	if l.own.GetDeletionTimestamp() != nil {
		f.breaks("I4", "creates %d pods and deletes %d of an owner on its way out", created, len(gone))
	}
	kept := len(mine) - len(gone)
	switch {
	case created > 0 && len(mine)+created > asked:
		f.breaks("I2", "creates %d pods; it has %d and asks for %d", created, len(mine), asked)
	case len(gone) > 0 && kept < asked:
		f.breaks("I4", "deletes %d of %d pods, and asks for %d", len(gone), len(mine), asked)
	}
	strangers(gone, mine, f)
	for _, p := range mine {
		other := slices.IndexFunc(mine, func(q *corev1.Pod) bool { return !gone[q.UID] && !ready(q) })
		if gone[p.UID] && ready(p) && other >= 0 {
			f.breaks("I5", "deletes %s, which is ready, and keeps %s, which is not", p.Name, mine[other].Name)
		}
	}
}

// strangers reports deleted pods that are not among those that may be deleted.
func strangers(gone map[types.UID]bool, mine []*corev1.Pod, f findings) {
	for uid := range gone {
		if !slices.ContainsFunc(mine, func(p *corev1.Pod) bool { return p.UID == uid }) {
			f.breaks("I4", "deletes a pod %s that is not a live one of its own", uid)
		}
	}
}

// jobJudged judges a Job: it has no more active pods than it may, and deletes one only if it
// has too many, or the Job is suspended, or says that it ends.
func jobJudged(l *look, f findings) {
	job, ok := l.own.(*batchv1.Job)
	gone, created := l.deletes(kinds.Pods.Name), len(l.creates(kinds.Pods.Name))
	if !ok || len(gone)+created == 0 {
		return
	}
	mine := l.live()
	strangers(gone, mine, f)
	ends := says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget)
	most := atOnce(job)
	if *job.Spec.Suspend || ends {
		most = 0
	} else if n := job.Spec.Completions; n != nil {
		most = min(most, max(0, int(*n)-succeeded(l, job)))
	}
	if created > 0 && len(mine)+created > most {
		f.breaks("I2", "creates %d pods; %d are at work and %d may be", created, len(mine), most)
	}
	kept, places := 0, map[string]bool{}
	for _, p := range mine {
		if !gone[p.UID] {
			kept++
			places[p.Annotations[batchv1.JobCompletionIndexAnnotation]] = true
		}
	}
	double := 0 // pods that go because another has their index
	for _, p := range mine {
		if place, indexed := p.Annotations[batchv1.JobCompletionIndexAnnotation]; gone[p.UID] && indexed && places[place] {
			double++
		}
	}
	if len(gone) > double && kept < most {
		f.breaks("I4", "deletes %d of %d pods at work, and %d may be", len(gone), len(mine), most)
	}
}

// succeeded is the number of succeeded pods of a Job in its view: those that the status has
// counted, and those that wait to be counted. An index counts once.
func succeeded(l *look, job *batchv1.Job) int {
	listed, failed := map[types.UID]bool{}, map[types.UID]bool{}
	if u := job.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range u.Succeeded {
			listed[uid] = true
		}
		for _, uid := range u.Failed {
			failed[uid] = true
		}
	}
	n, indexes := int(job.Status.Succeeded)+len(listed), indexesIn(job.Status.CompletedIndexes)
	for _, obj := range l.owned(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		if p.Status.Phase != corev1.PodSucceeded || !counted(p) || failed[p.UID] {
			continue
		}
		if !listed[p.UID] {
			n++
		}
		indexes[p.Annotations[batchv1.JobCompletionIndexAnnotation]] = true
	}
	if *job.Spec.CompletionMode == batchv1.IndexedCompletion {
		return len(indexes)
	}
	return n
}

// indexesIn parses indexes in the format of a status: "1,3-5,7".
func indexesIn(text string) map[string]bool {
	all := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			last, _ = strconv.Atoi(to)
		}
		for i := first; i <= last; i++ {
			all[strconv.Itoa(i)] = true
		}
	}
	return all
}

// cronJobJudged judges a CronJob: it deletes an active Job only if the next one replaces it; of
// the ended ones it deletes the oldest of each sort, and only those beyond the limit.
func cronJobJudged(l *look, f findings) {
	cron, ok := l.own.(*batchv1.CronJob)
	gone := l.deletes(kinds.Jobs.Name)
	if !ok || len(gone) == 0 {
		return
	}
	ended, own := map[batchv1.JobConditionType][]*batchv1.Job{}, 0
	for _, obj := range l.owned(kinds.Jobs.Name) {
		job := obj.(*batchv1.Job)
		end, over := endOf(job)
		if over {
			ended[end.Type] = append(ended[end.Type], job)
		}
		if !gone[job.UID] {
			continue
		}
		own++
		if !over && (cron.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent || *cron.Spec.Suspend) {
			f.breaks("I4", "deletes %s, which is at work", job.Name)
		}
	}
	if len(gone) > own {
		f.breaks("I4", "deletes %d Jobs that are not its own", len(gone)-own)
	}
	for how, limit := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cron.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cron.Spec.FailedJobsHistoryLimit,
	} {
		outOfOrder(ended[how], gone, int(*limit), func(a, b *batchv1.Job) bool { return a.Status.StartTime.Before(b.Status.StartTime) }, f)
	}
}

// outOfOrder judges the deletions from a history: only objects beyond the limit, and none while
// an older one is kept.
func outOfOrder[T metav1.Object](all []T, gone map[types.UID]bool, limit int, older func(a, b T) bool, f findings) {
	kept := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return gone[o.GetUID()] })
	if len(kept) < len(all) && len(kept) < limit {
		f.breaks("I4", "leaves %d of %d of the past, and %d are to be kept", len(kept), len(all), limit)
	}
	for _, o := range all {
		for _, k := range kept {
			if gone[o.GetUID()] && older(k, o) {
				f.breaks("I4", "deletes %s and keeps %s, which is older", o.GetName(), k.GetName())
			}
		}
	}
}

// endpointsJudged judges Endpoints: they are deleted only when no Service has their name.
func endpointsJudged(l *look, f findings) {
	if len(l.deletes(kinds.Endpoints.Name)) > 0 && l.has(kinds.Services.Name, l.key.Namespace, l.key.Name) {
		f.breaks("I4", "deletes the Endpoints of a Service that is there")
	}
	for _, c := range l.commands {
		var e corev1.Endpoints
		if c.Kind != kinds.Endpoints.Name || json.Unmarshal(c.Body, &e) != nil {
			continue
		}
		for _, subset := range e.Subsets {
			for _, a := range slices.Concat(subset.Addresses, subset.NotReadyAddresses) {
				answers(l, a.TargetRef, "Endpoints", f)
			}
		}
	}
}

// answers judges the target of an endpoint: a pod in the view.
func answers(l *look, pod *corev1.ObjectReference, where string, f findings) {
	if pod != nil && !slices.ContainsFunc(l.list(kinds.Pods.Name), func(p metav1.Object) bool { return p.GetUID() == pod.UID }) {
		f.breaks("S1", "names %s in %s, which is gone", pod.Name, where)
	}
}

// servedJudged judges EndpointSlices of pods: their targets are in the view, and no pod occurs
// twice in the slices of one turn.
func servedJudged(l *look, f findings) {
	slicesJudged("endpointslice-controller.k8s.io")(l, f)
	named := map[types.UID]bool{}
	for _, c := range l.commands {
		var slice discoveryv1.EndpointSlice
		if c.Kind != kinds.EndpointSlices.Name || json.Unmarshal(c.Body, &slice) != nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if answers(l, e.TargetRef, "a slice", f); e.TargetRef == nil {
				continue
			}
			if named[e.TargetRef.UID] {
				f.breaks("S1", "names %s in two slices", e.TargetRef.Name)
			}
			named[e.TargetRef.UID] = true
		}
	}
}

func (l *look) has(kind kinds.Name, namespace, name string) bool {
	return slices.ContainsFunc(l.list(kind), func(o metav1.Object) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}

// slicesJudged judges EndpointSlices: a controller deletes only slices that it manages, of the
// Service that it was asked about.
func slicesJudged(manager string) judgement {
	return func(l *look, f findings) {
		gone := l.deletes(kinds.EndpointSlices.Name)
		for _, obj := range l.list(kinds.EndpointSlices.Name) {
			labels := obj.GetLabels()
			if gone[obj.GetUID()] && (labels["endpointslice.kubernetes.io/managed-by"] != manager || labels["kubernetes.io/service-name"] != l.key.Name) {
				f.breaks("I4", "deletes %s, which has the labels %v", obj.GetName(), labels)
			}
		}
	}
}

// tokenJudged judges tokens: one is deleted only when its account does not exist.
func tokenJudged(l *look, f findings) {
	gone := l.deletes(kinds.Secrets.Name)
	for _, obj := range l.list(kinds.Secrets.Name) {
		notes := obj.GetAnnotations()
		for _, account := range l.list(kinds.ServiceAccounts.Name) {
			named := account.GetNamespace() == obj.GetNamespace() && account.GetName() == notes[corev1.ServiceAccountNameKey]
			uid := notes[corev1.ServiceAccountUIDKey]
			if gone[obj.GetUID()] && named && (uid == "" || uid == string(account.GetUID())) {
				f.breaks("I4", "deletes the token %s, whose account %s is there", obj.GetName(), account.GetName())
			}
		}
	}
}

// podJudged judges the pod garbage collector. It deletes a pod when its node is gone; when the
// pod is being deleted and has no node, or one that is out of service; or when too many pods
// have ended.
func podJudged(l *look, f findings) {
	gone := l.deletes(kinds.Pods.Name)
	for _, obj := range l.list(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		if !gone[p.UID] || !active(p) || p.Spec.NodeName != "" && !l.has(kinds.Nodes.Name, "", p.Spec.NodeName) {
			continue
		}
		f.breaks("I4", "deletes %s, which is live on %q", p.Name, p.Spec.NodeName)
	}
}
