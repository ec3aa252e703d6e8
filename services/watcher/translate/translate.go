// Package translate turns what the API server reports about one kind into deltas. It is pure: the
// time is an argument, and the same input gives the same deltas.
package translate

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// secrets is the kind whose content must never reach the bus.
const secrets kinds.Name = "secrets"

// Stamp is what a delta says besides its object.
type Stamp struct {
	At    time.Time
	Epoch uint64
	Sync  bool
	// Size says how much of an object fits the bus.
	Size Size
	// Hole is what a Gap reports.
	Hole events.Hole
	// Hide is what must not be recorded of objects.
	Hide redact.Policy
	// Writers is what is remembered of the version before this one.
	Writers Writers
	// First: this version is the object's first one.
	First bool
}

// Size is how much of an object a delta contains.
type Size int

const (
	// Whole: all that the kind's form has.
	Whole Size = iota
	// Brief: metadata of a kind that is on the bus in full; the delta's Form says so.
	Brief
	// Bare: only name, identity and dates, because the metadata alone is larger than a message may
	// be.
	Bare
)

// FormOf returns the form in which a kind may be on the bus: never in full for Secrets.
func FormOf(kind kinds.Kind) kinds.Form {
	if kind.Name == secrets || kind.Form != kinds.Full {
		return kinds.Metadata
	}
	return kinds.Full
}

// Object returns the delta that reports an object. It uses the object up: it removes managedFields,
// and what must not be on the bus.
//
// Errors: the object has no metadata, or its type cannot be encoded.
func Object(kind kinds.Kind, op events.Op, obj runtime.Object, s Stamp) (events.Delta, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return events.Delta{}, fmt.Errorf("translate an object of %s: %w", kind.Name, err)
	}
	d := events.Delta{
		Kind: kind.Name, Ref: events.Ref{Kind: kind.Name, Namespace: m.GetNamespace(), Name: m.GetName()}, Op: op,
		UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(), Generation: m.GetGeneration(),
		Deleting: m.GetDeletionTimestamp() != nil,
		Epoch:    s.Epoch, Sync: s.Sync, At: s.At,
		Form: FormOf(kind), ContentType: kinds.Protobuf,
	}
	s.Writers.attribute(&d, m.GetManagedFields())
	m.SetManagedFields(nil)
	if s.Size != Whole {
		d.Form = kinds.Metadata
	}
	if raw, ok := obj.(*kinds.Raw); ok && d.Form == kinds.Full {
		if len(s.Hide.Rules.Of(kind.Name)) == 0 && !hide(kind.Name, m, d.Form, s.Hide) {
			if d.Body, err = raw.Body(); err != nil {
				return events.Delta{}, fmt.Errorf("translate %v: %w", d.Ref, err)
			}
			return d, nil
		}
		if obj, m, err = whole(raw); err != nil {
			return events.Delta{}, fmt.Errorf("translate %v: %w", d.Ref, err)
		}
	}
	hide(kind.Name, m, d.Form, s.Hide)
	if d.Form == kinds.Metadata {
		obj = brief(kind, m, s.Size)
	}
	if _, custom := obj.(*unstructured.Unstructured); custom {
		d.ContentType = kinds.JSON
	}
	if d.Body, err = encode(kind, obj); err != nil {
		return events.Delta{}, fmt.Errorf("translate %v: %w", d.Ref, err)
	}
	return d, nil
}

// whole decodes an object into its Go type, without managedFields.
func whole(raw *kinds.Raw) (runtime.Object, metav1.Object, error) {
	obj, err := raw.Read()
	if err != nil {
		return nil, nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	m.SetManagedFields(nil)
	return obj, m, nil
}

// Mark reports that everything up to a version has been recorded.
func Mark(kind kinds.Name, version string, s Stamp) events.Delta {
	return events.Delta{
		Kind: kind, Op: events.Mark, ResourceVersion: version, Epoch: s.Epoch, At: s.At,
		Redaction: Redaction(kind, s.Hide),
	}
}

// markBody is the body of a mark, if it has one.
type markBody struct {
	Unserved bool `json:"unserved,omitempty"`
}

// Unserved returns the mark of a kind that the API server does not serve: the kind has no objects.
// A watch cannot resume from it.
func Unserved(kind kinds.Name, version string, s Stamp) events.Delta {
	d := Mark(kind, version, s)
	d.ContentType = kinds.JSON
	d.Body, _ = json.Marshal(markBody{Unserved: true}) // a bool: cannot fail
	return d
}

// Ended reports whether a mark says that its kind was not served.
func Ended(mark events.Delta) bool {
	var b markBody
	return mark.Op == events.Mark && json.Unmarshal(mark.Body, &b) == nil && b.Unserved
}

// Gap reports that changes before this point may be missing.
func Gap(kind kinds.Name, version string, s Stamp) events.Delta {
	body, _ := json.Marshal(s.Hole) // text and numbers: cannot fail
	return events.Delta{
		Kind: kind, Op: events.Gap, ResourceVersion: version, Epoch: s.Epoch, At: s.At,
		ContentType: kinds.JSON, Body: body, Redaction: Redaction(kind, s.Hide),
	}
}

// Redaction returns what a policy says of a kind: whether the API server may quote its hidden
// values.
func Redaction(kind kinds.Name, policy redact.Policy) events.Redaction {
	if len(policy.Rules.Of(kind)) > 0 {
		return events.Redacted
	}
	return events.Unredacted
}

// Again returns a stored delta as a keyframe.
func Again(d events.Delta, s Stamp) events.Delta {
	d.At, d.Epoch, d.Sync, d.Trace = s.At, s.Epoch, true, events.Trace{}
	d.Census, d.After, d.Left, d.Waits = events.Census{}, events.Link{}, events.Left{}, 0 // these belong to its old place
	return d
}

// Tombstone reports that the object that d reported no longer exists. The time and the version of
// its deletion are unknown; the body is its last known state.
func Tombstone(d events.Delta, s Stamp) events.Delta {
	d = Again(d, s)
	d.Op, d.By, d.Proven, d.Beside = events.Gone, events.Manager{}, false, nil
	return d
}

// hide removes what must not be on the bus.
func hide(kind kinds.Name, m metav1.Object, form kinds.Form, policy redact.Policy) (hidden bool) {
	if kind == secrets {
		redact.Withhold(m)
		hidden = true
	}
	return policy.Hide(kind, m, form == kinds.Full) || hidden
}

// Hidden removes what must not be recorded by now from a stored delta that is to be recorded again:
// it may have been stored before there was a rule. Of a delta that cannot be read Hidden keeps only
// the object's identity.
func Hidden(kind kinds.Kind, d events.Delta, policy redact.Policy) events.Delta {
	if d.Ref.Name == "" || kind.Name != secrets && len(policy.Rules.Of(kind.Name)) == 0 && !redact.Copied(d.Body) {
		return d
	}
	kind.Form = d.Form
	m, err := decode(kind, d)
	if err == nil && !hide(kind.Name, m, d.Form, policy) {
		return d
	}
	if err == nil {
		d.Body, err = encode(kind, m)
	}
	if err != nil {
		bare := brief(kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: d.Ref.Name, Namespace: d.Ref.Namespace, UID: d.UID, ResourceVersion: d.ResourceVersion, Generation: d.Generation,
		}}, Bare)
		d.Form, d.ContentType = kinds.Metadata, kinds.Protobuf
		d.Body, _ = kinds.Encode(kind, bare) // names and numbers: cannot fail
	}
	return d
}

func decode(kind kinds.Kind, d events.Delta) (metav1.Object, error) {
	if kind.Form == kinds.Full && d.ContentType == kinds.JSON {
		custom := &unstructured.Unstructured{}
		return custom, json.Unmarshal(d.Body, &custom.Object)
	}
	return kinds.Decode(kind, d.ContentType, d.Body)
}

// encode returns the body of an object: JSON for a kind without a Go type here, protobuf for all
// others.
func encode(kind kinds.Kind, object any) ([]byte, error) {
	switch o := object.(type) {
	case *unstructured.Unstructured:
		return json.Marshal(o.Object)
	case runtime.Object:
		return kinds.Encode(kind, o)
	default:
		return nil, fmt.Errorf("encode %s: %T is no object", kind.Name, object)
	}
}

// brief returns the metadata form of an object.
func brief(kind kinds.Kind, m metav1.Object, size Size) *metav1.PartialObjectMetadata {
	p, ok := m.(*metav1.PartialObjectMetadata)
	if !ok {
		p = meta.AsPartialObjectMetadata(m)
	}
	if size == Bare {
		p = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, Generation: p.Generation,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		}}
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: kind.APIVersion(), Kind: kind.Kind}
	return p
}
