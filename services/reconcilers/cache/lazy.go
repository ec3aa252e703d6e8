package cache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// lazy is an object of which only the owners have been decoded, because the indexes need them.
// A History folds such objects: most versions of the past are never looked at. It is for one
// goroutine, and whole must be called before any other method than GetOwnerReferences.
type lazy struct {
	metav1.Object // nil while it is not looked at
	owners        []metav1.OwnerReference
	kind          kinds.Kind
	body          []byte // in protobuf
}

// dropDecoded drops the decoded form of an object that has been replaced, which takes several times
// the room of its body: hardly any reader goes back to it. A reader that has it keeps it.
func dropDecoded(s *state) {
	if s == nil {
		return
	}
	if l, ok := s.object.Object.(*lazy); ok {
		l.Object = nil
	}
}

// GetOwnerReferences needs no decoding of the whole object.
func (l *lazy) GetOwnerReferences() []metav1.OwnerReference { return l.owners }

// whole is the decoded object; nil where only the owners can be decoded, which a foreign
// publisher, or the author of a file, can cause.
func (l *lazy) whole() metav1.Object {
	if l.Object == nil {
		read, err := kinds.Decode(l.kind, kinds.Protobuf, l.body)
		if err != nil {
			return nil
		}
		l.Object = read
	}
	return l.Object
}

// decodeOwners is decode for a History. It decodes bodies that are not in protobuf at once.
func (f *fact) decodeOwners(kind kinds.Kind) {
	if f.delta.Op != events.Is && f.delta.Op != events.Gone {
		return
	}
	if f.delta.Form != "" {
		kind.Form = f.delta.Form
	}
	if f.delta.ContentType != kinds.Protobuf || kind.Form == kinds.Metadata {
		f.decode(kind)
		return
	}
	owners, err := kinds.Owners(f.delta.Body)
	if err != nil {
		f.decode(kind) // decode reports the error
		return
	}
	f.object = reconcile.Object{Kind: kind, Object: &lazy{owners: owners, kind: kind, body: f.delta.Body}}
}

// decoded is the object as a [Snapshot] has it; ok is false for one that cannot be decoded.
func (h *cachedObject) decoded() (obj metav1.Object, ok bool) {
	obj = whole(h.object.Object)
	return obj, obj != nil
}

func whole(obj metav1.Object) metav1.Object {
	if l, ok := obj.(*lazy); ok {
		return l.whole()
	}
	return obj
}

func (h *cachedObject) decodedObject() (obj reconcile.Object, ok bool) {
	obj = reconcile.Object{Kind: h.object.Kind}
	obj.Object, ok = h.decoded()
	return obj, ok
}
