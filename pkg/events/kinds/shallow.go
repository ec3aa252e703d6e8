package kinds

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// envelope is how every body in protobuf begins.
//
// Upstream: apimachinery/pkg/runtime/serializer/protobuf.
var envelope = []byte{'k', '8', 's', 0}

// Where the owners and managedFields are: the object in its envelope beside its type, in every object its
// metadata, and in that both.
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

// Owners gives the owner references in a full body in protobuf, and passes over all
// else. It costs a small part of [Decode].
//
// Errors: the bytes are damaged, or are no protobuf.
func Owners(body []byte) ([]metav1.OwnerReference, error) {
	rest, ok := bytes.CutPrefix(body, envelope)
	if !ok {
		return nil, errors.New("read owners: the body does not begin as protobuf does")
	}
	var object []byte // of several the last one counts, as it does for who reads all of it
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

// each hands over every field of a number, whose values are bytes, in a message.
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
