package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Crons is what users do with CronJobs, while minutes pass.
var Crons = []cluster.Operation{newCron, newCron, minutesPass, minutesPass, minutesPass, rescheduleCron, suspendCron, cluster.FailPod, deleteCron}

// minutesPass has users pause, so that runs begin.
func minutesPass(w *cluster.Cluster) { w.Lull = w.Now.Add(time.Duration(1+w.Roll(240)) * time.Second) }

// rescheduleCron gives a CronJob another schedule.
func rescheduleCron(w *cluster.Cluster) {
	if ref, there := someCron(w); there {
		schedule := soonAfter(w)
		w.Note("user: %v runs at %s", ref, schedule)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*batchv1.CronJob).Spec.Schedule = schedule })
	}
}

// begins checks a Job that a CronJob creates: its time is in the schedule, has come by the
// clock of the process that decided, and has had no run.
func begins(g *cluster.Guard, job *batchv1.Job) {
	if g.Turns.Doing == nil || g.Turns.Doing.Turn.Controller != "cronjob-controller" {
		return
	}
	at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	owner := metav1.GetControllerOfNoCopy(job)
	if err != nil || owner == nil {
		g.Breaks("C1", "%s does not say of which moment and CronJob it is", job.Name)
		return
	}
	r, turn := cluster.CronRun{Of: owner.UID, Moment: at.Unix() / 60}, g.Turns.Doing.Turn
	if at.After(turn.Now) {
		g.Breaks("C1", "%s begins %v before its moment", job.Name, at.Sub(turn.Now))
	}
	if g.Jobs.Begun[r] {
		g.Breaks("C1", "%s begins again", job.Name)
	}
	g.Jobs.Begun[r] = true
	versions := versions(g, owner, job.Namespace, &turn)
	if len(versions) == 0 && g.Record.Restored {
		g.Spare(cluster.RestoredAway)
		return
	}
	if !slices.ContainsFunc(versions, func(obj metav1.Object) bool {
		return scheduled(obj.(*batchv1.CronJob).Spec.Schedule, at)
	}) {
		g.Breaks("C1", "%s begins at %v, which is no moment of its schedule", job.Name, at)
	}
}

// Rescheduled records when a CronJob got another schedule.
func Rescheduled(g *cluster.Guard, old, now metav1.Object) {
	was, ok := old.(*batchv1.CronJob)
	is, there := now.(*batchv1.CronJob)
	if ok && there && was.Spec.Schedule != is.Spec.Schedule {
		g.Jobs.Other[is.UID] = g.World.Now
	}
}

// scheduled reports whether a time is in a schedule, which names minutes and one hour.
func scheduled(schedule string, at time.Time) bool {
	fields := strings.Fields(schedule)
	minutes, hour := strings.Split(fields[0], ","), fields[1]
	return slices.Contains(minutes, strconv.Itoa(at.UTC().Minute())) && hour == strconv.Itoa(at.UTC().Hour()) && at.Second() == 0
}

// lastMoment is the last time of a schedule up to one time and after another.
func lastMoment(schedule string, after, until time.Time) (at time.Time, ok bool) {
	for at = until.Truncate(time.Minute); at.After(after); at = at.Add(-time.Minute) {
		if scheduled(schedule, at) {
			return at, true
		}
	}
	return time.Time{}, false
}

// taken reports whether a Job of another owner has the name of a run, or had it when the run was
// due.
func taken(w *cluster.Cluster, cron *batchv1.CronJob, at time.Time) bool {
	name := fmt.Sprintf("%s-%d", cron.Name, at.Unix()/60)
	job := w.API.Get(jobRef(name))
	return job != nil && cluster.ControllerOf(job) != cron.UID || w.Guard.Jobs.Names[name]
}

// takenAhead reports whether the run of a later moment, which had come by a clock that was ahead,
// was left out because its name was taken. By that clock it was the last run that was due.
func takenAhead(w *cluster.Cluster, cron *batchv1.CronJob, after time.Time) bool {
	if _, ever := w.Guard.Turns.Ahead[cluster.ActLane{Controller: "cronjob-controller", Key: events.Key{Namespace: cron.Namespace, Name: cron.Name}}]; !ever {
		return false
	}
	for until := w.Now.Add(cluster.FarAhead); ; {
		at, some := lastMoment(cron.Spec.Schedule, after, until)
		if !some || taken(w, cron, at) {
			return some
		}
		until = at.Add(-time.Minute)
	}
}

// RunsMade reports whether the last scheduled time of each CronJob has had its run. Of several
// missed times only the last has a run, as upstream's policy is; and when the world is at rest,
// no run is active that another one would wait for.
func RunsMade(w *cluster.Cluster) error {
	if !w.Runs("cronjob-controller") {
		return nil
	}
	for _, obj := range w.API.List(kinds.CronJobs.Name) {
		cron := obj.(*batchv1.CronJob)
		since, other := w.Guard.Jobs.Other[cron.UID]
		if since = since.Add(time.Second); cron.CreationTimestamp.After(since) {
			since = cron.CreationTimestamp.Time
		}
		at, due := lastMoment(cron.Spec.Schedule, since, w.Now.Add(-time.Second))
		last := cron.Status.LastScheduleTime
		switch {
		case !due || *cron.Spec.Suspend || last != nil && !last.Time.Before(at):
		case taken(w, cron, at), takenAhead(w, cron, at):
			w.Guard.Spare(cluster.TakenRun)
		case other && w.Settings.Faults > 0:
			w.Guard.Spare(cluster.HeardLater)
		default:
			return fmt.Errorf("%s should have run at %v, and says that it ran last at %v", cron.Name, at, last)
		}
	}
	return nil
}
