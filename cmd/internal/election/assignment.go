package election

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The annotations of a Lease of Leader Migration: whom a person has assigned the controllers to, and
// which Millrace process stands by for them.
const (
	AssignedAnnotation  = "millrace.io/assigned"
	CandidateAnnotation = "millrace.io/candidate"
)

// The components among which controllers move, by the names that a LeaderMigrationConfiguration
// gives them.
const (
	Millrace = "millrace"
	KCM      = "kube-controller-manager"
)

// holderPrefix begins the identity of every Millrace process that holds a Lease of Leader Migration.
const holderPrefix = Millrace + "_"

// Assignment is a person's decision about who runs the controllers that move with a Lease.
type Assignment struct {
	// ID distinguishes the assignments of a Lease. A Millrace process takes the Lease from a live
	// kube-controller-manager once for each.
	ID string `json:"id"`
	// To is [Millrace] or [KCM].
	To string `json:"to"`
	// By is the user, as the API server knows them.
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
	Because string    `json:"because,omitempty"`
}

// State is what a candidate does.
type State string

// The states of a candidate.
const (
	// Waiting: its controllers are in shadow.
	Waiting State = "waiting"
	// Taking: it holds the Lease, and waits until the former holder can not act any more.
	Taking State = "taking"
	// Acting: its controllers act.
	Acting State = "acting"
	// Stopped: it has stopped and will be started again. It leaves the Lease to the next Millrace
	// process until that expires.
	Stopped State = "stopped"
)

// Candidate is a Millrace process that holds the Lease whenever the controllers are assigned to
// Millrace.
type Candidate struct {
	// ID is its identity as a holder.
	ID string `json:"id"`
	// Controllers are those that move with the Lease.
	Controllers []string `json:"controllers"`
	State       State    `json:"state"`
	// Took is the ID of the assignment with which Millrace took the Lease last.
	Took string `json:"took,omitempty"`
	// Problem is why the process could not run the controllers and does not take the Lease; empty: it
	// could.
	Problem string `json:"problem,omitempty"`
	// Token is the fencing token of the turns: when Millrace took the Lease from another component,
	// or a free one, in microseconds since 1970.
	Token uint64 `json:"token,omitempty"`
}

// Handover is what the annotations of a Lease say.
type Handover struct {
	// Assigned is the zero value while no person has decided.
	Assigned Assignment
	// Candidate is the zero value while no Millrace process stands by.
	Candidate Candidate
}

// HandoverOf reads the annotations of a Lease.
//
// Errors: an annotation is not JSON of its type.
func HandoverOf(l *coordinationv1.Lease) (h Handover, err error) {
	for annotation, into := range map[string]any{AssignedAnnotation: &h.Assigned, CandidateAnnotation: &h.Candidate} {
		text, ok := l.Annotations[annotation]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return Handover{}, fmt.Errorf("read the annotation %s of the Lease %s: %w", annotation, l.Name, err)
		}
	}
	return h, nil
}

// Annotate writes a value as an annotation of a Lease, in memory.
func Annotate(l *coordinationv1.Lease, annotation string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[annotation] = string(text)
	return nil
}

// HolderOf returns the identity of the holder of a Lease, "" if none, and for how long the Lease is
// valid after a renewal.
func HolderOf(l *coordinationv1.Lease) (holder string, valid time.Duration) {
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseDurationSeconds != nil {
		valid = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return holder, valid
}

// HeldByMillrace reports whether the holder of a Lease is a Millrace process.
func HeldByMillrace(holder string) bool { return strings.HasPrefix(holder, holderPrefix) }
