package sign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A hint is a JSON object that a writer publishes without storing it. It has no place, so a copy
// of it counts as well; therefore it counts for at most [HintWithin]. Its signature is its last
// member, and covers everything before it.

// hint is the purpose of such a signature.
const hint purpose = "millrace-hint-v1"

// HintWithin is the maximum age of a hint, by the clocks of the signer and of the receiver.
const HintWithin = 10 * time.Second

// signatureOf is the last member of a hint.
type signatureOf struct {
	Key       string `json:"key"`
	At        string `json:"at"`
	Signature []byte `json:"signature"`
}

var (
	hintBegins = []byte(`,"signed":`)
	hintEnds   = []byte("}")
)

// Hint signs a message for a topic: a JSON object with at least one member. A nil Signer signs
// nothing.
func (s *Signer) Hint(topic string, text []byte, now time.Time) []byte {
	if s == nil {
		return text
	}
	key, at := s.key(), now.UTC().Format(time.RFC3339Nano)
	said := bytes.TrimSuffix(text, hintEnds)
	signed, _ := json.Marshal(signatureOf{key.id, at, verified.sign(key.private, key.public, statementOf(topic, said, at))}) // strings and bytes: cannot fail
	out := make([]byte, 0, len(text)+len(hintBegins)+len(signed))
	return append(append(append(append(out, said...), hintBegins...), signed...), hintEnds...)
}

// OwnHint is [Trust.Hint] for the keys that this signer uses or used.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func (s *Signer) OwnHint(topic string, text []byte, now time.Time) error {
	if s == nil {
		return nil
	}
	said, by, err := readHint(text, now)
	if err != nil {
		return err
	}
	s.key()
	s.mu.Lock()
	public, ok := s.own[by.Key]
	s.mu.Unlock()
	if !ok {
		return unproven("key %q is not ours", cut(by.Key))
	}
	return by.proves(public, topic, said)
}

// Hint reports whether a message on a topic counts now. Until the first key is valid, every
// message counts.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func (t *Trust) Hint(topic string, text []byte, now time.Time) error {
	if t.History(events.Message{Time: now}) {
		return nil
	}
	said, by, err := readHint(text, now)
	if err != nil {
		return err
	}
	key, ok := t.file.get().keys[by.Key]
	if !ok {
		return unproven("key %q is not trusted", cut(by.Key))
	}
	if err := key.Counts(now); err != nil {
		return err
	}
	return by.proves(key.Public, topic, said)
}

// readHint splits a hint into the signed text and its signature.
func readHint(text []byte, now time.Time) (said []byte, by signatureOf, err error) {
	at := bytes.LastIndex(text, hintBegins)
	if at < 0 {
		return nil, by, ErrUnsigned
	}
	signed, ended := bytes.CutSuffix(text[at+len(hintBegins):], hintEnds)
	if !ended || json.Unmarshal(signed, &by) != nil || len(by.Signature) != ed25519.SignatureSize {
		return nil, by, unproven("it does not end with a signature")
	}
	if written, err := json.Marshal(by); err != nil || !bytes.Equal(written, signed) {
		return nil, by, unproven("its signature is written otherwise than we write it")
	}
	when, err := time.Parse(time.RFC3339Nano, by.At)
	if err != nil || now.Sub(when).Abs() > HintWithin {
		return nil, by, unproven("it was signed at %q, which is not within %v", cut(by.At), HintWithin)
	}
	return text[:at], by, nil
}

// proves reports whether a key has signed the text. There may be many forged hints, and every
// controller of a process hears each of them: so proves remembers invalid signatures, too.
func (by signatureOf) proves(public ed25519.PublicKey, topic string, said []byte) error {
	statement := statementOf(topic, said, by.At)
	id := digest(public, statement, by.Signature)
	if !forged.knows(id) && verified.verify(public, statement, by.Signature) {
		return nil
	}
	forged.add(id)
	return unproven("key %s has not signed this", by.Key)
}

// forged are the signatures of hints that were found invalid.
var forged memo

func statementOf(topic string, said []byte, at string) []byte {
	return statement(hint, events.Message{Subject: topic, Data: said}, "", at)
}
