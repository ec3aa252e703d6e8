package kinds

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// envelope is the prefix of every body in protobuf.
//
// Upstream: apimachinery/pkg/runtime/serializer/protobuf.
var envelope = []byte{'k', '8', 's', 0}

// The fields on the way to the owners and managedFields: the envelope has the object beside its
// type, every object has its metadata, and the metadata has both.
//
// Upstream: apimachinery/pkg/runtime/generated.proto (Unknown) and
// apimachinery/pkg/apis/meta/v1/generated.proto (ObjectMeta).
const (
	fieldType     protowire.Number = 1
	fieldRaw      protowire.Number = 2
	fieldMetadata protowire.Number = 1
	fieldOwners   protowire.Number = 13
	fieldManagers protowire.Number = 17
)

// Owners gives the owner references in a full body in protobuf, and skips everything else. It
// costs a small part of [Decode].
//
// Errors: the bytes are damaged, or are no protobuf.
func Owners(body []byte) ([]metav1.OwnerReference, error) {
	rest, ok := bytes.CutPrefix(body, envelope)
	if !ok {
		return nil, errors.New("read owners: the body does not begin as protobuf does")
	}
	var object []byte // if there are several, the last one counts, as in a full decode
	err := each(rest, fieldRaw, func(raw []byte) error { object = raw; return nil })
	if err != nil {
		return nil, fmt.Errorf("read owners: %w", err)
	}
	var owners []metav1.OwnerReference
	err = each(object, fieldMetadata, func(metadata []byte) error {
		return each(metadata, fieldOwners, func(text []byte) error {
			var owner metav1.OwnerReference
			if err := owner.Unmarshal(text); err != nil {
				return err
			}
			owners = append(owners, owner)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read owners: %w", err)
	}
	return owners, nil
}

// each calls take for every field of the message with this number and a value of bytes.
func each(message []byte, wanted protowire.Number, take func([]byte) error) error {
	for len(message) > 0 {
		number, of, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if number != wanted || of != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, of, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := take(value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
