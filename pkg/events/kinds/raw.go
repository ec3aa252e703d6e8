package kinds

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The fields with the node of a Pod.
//
// Upstream: api/core/v1/generated.proto (Pod, PodSpec).
const (
	fieldPodSpec  protowire.Number = 2
	fieldNodeName protowire.Number = 10
)

// Raw is an object in protobuf as the API server sent it. Only its metadata is decoded; the rest
// is passed on unchanged, including fields that the Go type does not know.
type Raw struct {
	metav1.ObjectMeta
	kind   Kind
	object []byte // the object's message, without the envelope
}

var _ runtime.Object = (*Raw)(nil)
var _ metav1.Object = (*Raw)(nil)

// ReadRaw decodes the metadata of a full body in protobuf, and keeps the bytes, which the caller
// must not change afterwards.
//
// Errors: the bytes are damaged, are no protobuf, or are of another kind, such as a Status with
// an error of the API server.
func ReadRaw(kind Kind, body []byte) (*Raw, error) {
	rest, ok := bytes.CutPrefix(body, envelope)
	if !ok {
		return nil, errors.New("read metadata: the body does not begin as protobuf does")
	}
	r := &Raw{kind: kind}
	var of runtime.TypeMeta
	err := each(rest, fieldType, func(text []byte) error { return of.Unmarshal(text) })
	if err == nil {
		err = each(rest, fieldRaw, func(text []byte) error { r.object = text; return nil })
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read metadata: %w", err)
	case of.APIVersion != kind.APIVersion() || of.Kind != kind.Kind:
		return nil, fmt.Errorf("read metadata: the body is of %s %s, not of %s %s", of.APIVersion, of.Kind, kind.APIVersion(), kind.Kind)
	}
	metadata, _, err := r.split()
	if err == nil { // the Go types accept more: a group with a mismatched end, which without cannot skip
		err = each(metadata, fieldManagers, func([]byte) error { return nil })
	}
	if err == nil {
		err = r.ObjectMeta.Unmarshal(metadata)
	}
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	return r, nil
}

// split gives the metadata of the object, which is the first field of every kind, and the rest.
func (r *Raw) split() (metadata, rest []byte, err error) {
	number, of, n := protowire.ConsumeTag(r.object)
	if number != fieldMetadata || of != protowire.BytesType { // also if no tag can be read
		return nil, nil, errors.New("it is not the first field of the object")
	}
	metadata, size := protowire.ConsumeBytes(r.object[n:])
	if size < 0 {
		return nil, nil, protowire.ParseError(size)
	}
	return metadata, r.object[n+size:], nil
}

// without appends a message to text, leaving one of its fields out.
func without(left protowire.Number, text, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if number != left {
			text = append(text, message[:n]...)
		}
		message = message[n:]
	}
	return text, nil
}

// Body is the object as [Encode] would write it, without managedFields. It does not contain
// changes made to the metadata since ReadRaw.
//
// Errors: the bytes are damaged.
func (r *Raw) Body() ([]byte, error) {
	metadata, rest, err := r.split()
	if err == nil {
		metadata, err = without(fieldManagers, make([]byte, 0, len(metadata)), metadata)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.kind.Name, err)
	}
	object := protowire.AppendTag(make([]byte, 0, len(r.object)), fieldMetadata, protowire.BytesType)
	object = append(protowire.AppendBytes(object, metadata), rest...)
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: r.kind.APIVersion(), Kind: r.kind.Kind}, Raw: object}
	text := make([]byte, len(envelope)+unknown.Size())
	if _, err := unknown.MarshalTo(text[copy(text, envelope):]); err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.kind.Name, err)
	}
	return text, nil
}

// Read decodes the whole object into its Go type, as it was sent.
//
// Errors: the bytes are damaged.
func (r *Raw) Read() (runtime.Object, error) {
	obj, err := scheme.New(r.kind.GVK())
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", r.kind.Name, err)
	}
	message, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, fmt.Errorf("decode %s: %T has no protobuf form", r.kind.Name, obj)
	}
	if err := message.Unmarshal(r.object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", r.kind.Name, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(r.kind.GVK())
	return obj, nil
}

// NodeName is the node that a Pod is bound to; empty for an unbound Pod, and for other kinds.
func (r *Raw) NodeName() (name string) {
	if r.kind.Name != Pods.Name {
		return ""
	}
	_ = each(r.object, fieldPodSpec, func(spec []byte) error { // a damaged body has no name
		return each(spec, fieldNodeName, func(text []byte) error { name = string(text); return nil })
	})
	return name
}

// GetObjectKind implements [runtime.Object].
func (r *Raw) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: r.kind.APIVersion(), Kind: r.kind.Kind}
}

// DeepCopyObject implements [runtime.Object].
func (r *Raw) DeepCopyObject() runtime.Object {
	return &Raw{ObjectMeta: *r.ObjectMeta.DeepCopy(), kind: r.kind, object: slices.Clone(r.object)}
}
