package workloads

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// JobJudged judges a Job: it has no more active pods than it may, and deletes one only if it
// has too many, or the Job is suspended, or says that it ends.
func JobJudged(l *cluster.Look, f cluster.Findings) {
	job, ok := l.Own.(*batchv1.Job)
	gone, created := l.Deletes(kinds.Pods.Name), len(l.Creates(kinds.Pods.Name))
	if !ok || len(gone)+created == 0 {
		return
	}
	mine := l.Live()
	strangers(gone, mine, f)
	ends := says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget)
	most := atOnce(job)
	if *job.Spec.Suspend || ends {
		most = 0
	} else if n := job.Spec.Completions; n != nil {
		most = min(most, max(0, int(*n)-succeeded(l, job)))
	}
	if created > 0 && len(mine)+created > most {
		f.Breaks("I2", "creates %d pods; %d are at work and %d may be", created, len(mine), most)
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
		f.Breaks("I4", "deletes %d of %d pods at work, and %d may be", len(gone), len(mine), most)
	}
}

// succeeded is the number of succeeded pods of a Job in its view: those that the status has
// counted, and those that wait to be counted. An index counts once.
func succeeded(l *cluster.Look, job *batchv1.Job) int {
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
	for _, obj := range l.Owned(kinds.Pods.Name) {
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

// CronJobJudged judges a CronJob: it deletes an active Job only if the next one replaces it; of
// the ended ones it deletes the oldest of each sort, and only those beyond the limit.
func CronJobJudged(l *cluster.Look, f cluster.Findings) {
	cron, ok := l.Own.(*batchv1.CronJob)
	gone := l.Deletes(kinds.Jobs.Name)
	if !ok || len(gone) == 0 {
		return
	}
	ended, own := map[batchv1.JobConditionType][]*batchv1.Job{}, 0
	for _, obj := range l.Owned(kinds.Jobs.Name) {
		job := obj.(*batchv1.Job)
		end, over := EndOf(job)
		if over {
			ended[end.Type] = append(ended[end.Type], job)
		}
		if !gone[job.UID] {
			continue
		}
		own++
		if !over && (cron.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent || *cron.Spec.Suspend) {
			f.Breaks("I4", "deletes %s, which is at work", job.Name)
		}
	}
	if len(gone) > own {
		f.Breaks("I4", "deletes %d Jobs that are not its own", len(gone)-own)
	}
	for how, limit := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cron.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cron.Spec.FailedJobsHistoryLimit,
	} {
		outOfOrder(ended[how], gone, int(*limit), func(a, b *batchv1.Job) bool { return a.Status.StartTime.Before(b.Status.StartTime) }, f)
	}
}

// outOfOrder judges the deletions from a history: only objects beyond the limit, and none while
// an older one is kept.
func outOfOrder[T metav1.Object](all []T, gone map[types.UID]bool, limit int, older func(a, b T) bool, f cluster.Findings) {
	kept := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return gone[o.GetUID()] })
	if len(kept) < len(all) && len(kept) < limit {
		f.Breaks("I4", "leaves %d of %d of the past, and %d are to be kept", len(kept), len(all), limit)
	}
	for _, o := range all {
		for _, k := range kept {
			if gone[o.GetUID()] && older(k, o) {
				f.Breaks("I4", "deletes %s and keeps %s, which is older", o.GetName(), k.GetName())
			}
		}
	}
}
