package cluster

import (
	"fmt"
	"strings"
)

// Exception is a case in which a rule is not checked, with its reason in reasons. Worlds count
// how often each was made.
type Exception int

// The exceptions.
const (
	UnknownLook Exception = iota
	Scaling
	StaleSets
	Given
	Forgotten
	Unnoticed
	GoneUnsaid
	WentBack
	FoundWritten
	AskedAgain
	FaultyAutoscalers
	ListedTokens
	HeardNow
	LeavingOwner
	NoSilence
	Sampled
	HeardLater
	IndexedWork
	TakenRun
	KeptOn
	ClaimsCircle
	ClockAhead
	RestoredAway
	ClaimGone
	CountedLate
	EndsLater
	CameAgain
	UncertainAttach
	RangeMeanwhile
	UsedMeanwhile
	PodGone
	CrackedBefore
	NodeMeanwhile
	SilentThen
	FirstByName
	exceptions
)

var reasons = [exceptions]struct{ name, why string }{
	UnknownLook:       {"I4 of a turn whose view is not known", "its process decided again about the key before the bus took the turn"},
	Scaling:           {"I5 of a Deployment that is scaled", "its sets share the new number whatever is available, as upstream's do"},
	StaleSets:         {"I5 of a set that says more are available than it asks for", "its status is of before it was made smaller, and a Deployment knows no better, as upstream's reconcileOldReplicaSets (pkg/controller/deployment/rolling.go), which believes status.availableReplicas whatever generation it is of"},
	Given:             {"I2 of a pod that its owner was given", "another controller or a user gave it since the turn looked, so the turn could not count it"},
	Forgotten:         {"I10 of a log that has lost its end", "what it had said of an object that is gone by now it does not say again"},
	Unnoticed:         {"I10 of a log that has lost its end, by what it had said", "a process that has not noticed the loss yet has seen it"},
	GoneUnsaid:        {"I10 of an object that is gone", "a list that was compared tells only that it is not there, in the version that was known"},
	WentBack:          {"A2 of a scale that went to and fro", "what went the other way may be remembered for longer than it is true, as upstream does"},
	FoundWritten:      {"A2 of a scale that a turn found as it should be", "a user has written it, and the controller may take it for its own, as upstream does"},
	AskedAgain:        {"A3 of a round that is asked again", "it has another answer"},
	FaultyAutoscalers: {"A6 where something goes wrong", "what a lost answer had asked for is known to none, and upstream's memory ends with its process"},
	ListedTokens:      {"the list of an account, where something goes wrong", "a token that is gone tells of its account no more to a process that has not seen it"},
	HeardNow:          {"F24 of a node that was heard at this very moment", "that is on its way to the process that decided"},
	LeavingOwner:      {"I4 of an object whose owner is on its way out", "a deletion in the foreground that a user turns into one that orphans races the collector, here as upstream"},
	HeardLater:        {"C1 of a moment of a schedule that was changed, where something goes wrong", "it begins with the next moment after reconcilers have heard of it"},
	TakenRun:          {"C1 and I1 of a moment whose Job has a name that is taken, or that of a later moment by a clock that is ahead", "a Job of another owner leaves that run out"},
	KeptOn:            {"I1 of a CronJob that could not delete a run, and has another to come", "it is tried again with that run, as upstream's cleanupFinishedJobs (pkg/controller/cronjob), of which an error asks for no retry"},
	IndexedWork:       {"I4 of a pod of a Job with indexes, at its effect", "another pod may have its index; the decision is judged by that"},
	ClaimsCircle:      {"I1 of a StatefulSet that is deleted in the foreground while a claim goes with its pod", "the pod waits for the claim and the claim for the pod, for ever, as upstream's podUsesPVCForDeletion (pkg/controller/volume/pvcprotection), which lets go of a pod that has ended for ephemeral volumes alone; users delete such a set in the background"},
	ClockAhead:        {"A2, F24 and I11 of what was decided by a clock that is ahead", "by that clock the time has passed, and by another replica's it has not"},
	RestoredAway:      {"C1 of a CronJob that a restore of the API server took away", "its watcher stands still for longer than kinds wait for each other, and an informer of upstream's would not know either"},
	ClaimGone:         {"V1 of a volume that is given to a claim that is gone", "the volume alone is a condition of the write, as upstream's; it is released when that is seen"},
	CountedLate:       {"I1 of a quota that was counted while a watch cache stood still, or by reconcilers that have just begun", "what is made asks for no count, as upstream's: the API server charges it, a count of an older state takes that back, and it is counted again after the period"},
	EndsLater:         {"I1 of a Job that says it ended later than it is", "the clock of the reconcilers was ahead when it ended, and it goes when its own time has passed since that moment, as upstream's timeLeft (pkg/controller/ttlafterfinished)"},
	CameAgain:         {"V1 of a volume that came again under the name of one that a claim had", "the claim gets it whatever it is like, as upstream's syncBoundClaim (pkg/controller/volume/persistentvolume)"},
	UncertainAttach:   {"V4 of a volume whose driver could not attach it once", "it does not keep others from trying, as upstream's uncertain volumes (pkg/controller/volume/attachdetach/cache), and the driver may do it all the same"},
	RangeMeanwhile:    {"N1 of a range that another program gives between a writer's look and its request", "no condition of a write is about other nodes"},
	UsedMeanwhile:     {"I12 of a group that a pod has come into between a writer's look and its request", "the API server lets pods into groups that are deleted, here as upstream"},
	PodGone:           {"D1 of a claim that is reserved for a pod that is gone", "the claim alone is a condition of the write; the reservation is taken back when that is seen"},
	CrackedBefore:     {"D2 of a pod that was given a device just after that had ceased to drive pods away", "its controller has heard of the one and not yet of the other, as upstream's informers may, which read each kind on their own"},
	NodeMeanwhile:     {"I4 of a pod whose node is created between a writer's look and its request", "no condition of a delete is about another object, as upstream's podgc (pkg/controller/podgc), which asks for the node before it deletes"},
	SilentThen:        {"F24 of a node that was silent for long enough before its watcher stood still", "what was heard since is not recorded yet, and an informer of upstream's would not know it either"},
	FirstByName:       {"I5 of two pods of one node that were created in the same second, neither of the template", "the one whose name comes first stays, as upstream's podByCreationTimestampAndPhase (pkg/controller/daemon) has it"},
	Sampled:           {"I13 of a decision", "one in so many is decided again, which costs as much as deciding"},
	NoSilence:         {"I1 of a world that never sleeps", "a controller in it asks again and again; it has been silent for as long as its shape says"},
}

// Spare counts an exception.
func (g *Guard) Spare(e Exception) { g.World.Counts.Spared[e]++ }

// Exceptions lists the exceptions that were made, how often, and why.
func (t Tally) Exceptions() string {
	var b strings.Builder
	for e, n := range t.Spared {
		fmt.Fprintf(&b, "%9d times not judged: %s, since %s\n", n, reasons[e].name, reasons[e].why)
	}
	return b.String()
}

// Excepted is how often each exception was made, by its name.
func (t Tally) Excepted() map[string]int {
	all := map[string]int{}
	for e, n := range t.Spared {
		all[reasons[e].name] = n
	}
	return all
}
