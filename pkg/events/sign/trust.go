package sign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// lenience is how long before its Not-Before a key counts, by the clock of the bus, because the
// machine that made the key may have another clock.
const lenience = time.Minute

// Trust are the public keys whose signatures count. A nil Trust accepts everything. It is safe
// for concurrent use.
type Trust struct {
	file *file[ring]
}

// ring are the keys of a trust file.
type ring struct {
	keys  map[string]Key
	since time.Time // earlier messages need no signature; zero: all need one
}

func newRing(keys []Key) ring {
	r := ring{keys: make(map[string]Key, len(keys)), since: keys[0].NotBefore}
	for _, k := range keys {
		r.keys[k.ID] = k
		if k.NotBefore.Before(r.since) {
			r.since = k.NotBefore
		}
	}
	return r
}

func parseRing(text []byte) (ring, error) {
	keys, err := ParseTrust(text)
	if err != nil {
		return ring{}, err
	}
	return newRing(keys), nil
}

// NewTrust trusts the keys in the text of a trust file.
//
// Errors: the text is no trust file.
func NewTrust(text []byte) (*Trust, error) {
	r, err := parseRing(text)
	if err != nil {
		return nil, err
	}
	return &Trust{file: fixed(r)}, nil
}

// TrustFile trusts the keys in a file, which it reads again when the file changes. If a later
// content is invalid, it calls warn once and keeps the previous keys.
//
// Errors: the file cannot be read, or is no trust file.
func TrustFile(path string, warn func(error)) (*Trust, error) {
	f, err := open(path, parseRing, warn)
	if err != nil {
		return nil, err
	}
	return &Trust{file: f}, nil
}

// Turn reports whether a stored turn counts. within limits the difference between the times at
// which it was signed and stored.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func (t *Trust) Turn(m events.Message, within time.Duration) error { return t.check(turn, m, within) }

// Outcome reports whether a stored outcome counts.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func (t *Trust) Outcome(m events.Message) error { return t.check(outcome, m, OutcomeWithin) }

// History reports whether a message was stored before messages had to be signed.
func (t *Trust) History(m events.Message) bool {
	return t == nil || m.Time.Before(t.file.get().since)
}

// Revoked is when the key that a message names was revoked; zero if it was not, or is not known.
func (t *Trust) Revoked(m events.Message) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.file.get().keys[By(m)].Revoked
}

func (t *Trust) check(p purpose, m events.Message, within time.Duration) error {
	if t.History(m) {
		return nil
	}
	c, err := read(p, m)
	if err != nil {
		return err
	}
	key, ok := t.file.get().keys[c.key]
	if !ok { // the signer may use a new key that this process has not read yet
		key, ok = t.file.fresh().keys[c.key]
	}
	if !ok {
		return unproven("key %q is not trusted", cut(c.key))
	}
	if err := key.Counts(m.Time); err != nil {
		return err
	}
	if err := key.of(m); err != nil {
		return err
	}
	if err := c.together(m, within); err != nil {
		return err
	}
	if err := p.stands(m); err != nil {
		return err
	}
	if !verified.verify(key.Public, c.said, c.signature) {
		return unproven("key %s has not signed this", c.key)
	}
	return nil
}

// Counts reports whether the key is valid for messages stored at a moment.
//
// Errors: [ErrUnproven], of which [ErrRevoked] is one.
func (k Key) Counts(at time.Time) error {
	switch {
	case at.Before(k.NotBefore.Add(-lenience)):
		return unproven("key %s counts only from %v on", k.ID, k.NotBefore.UTC().Format(time.RFC3339))
	case !k.NotAfter.IsZero() && at.After(k.NotAfter):
		return unproven("key %s counted only until %v", k.ID, k.NotAfter.UTC().Format(time.RFC3339))
	case !k.Revoked.IsZero() && !at.Before(k.Revoked):
		return fmt.Errorf("%w: key %s counted until it was revoked, %v", ErrRevoked, k.ID, k.Revoked.UTC().Format(time.RFC3339))
	}
	return nil
}

// of reports whether the key may sign messages of this message's controller.
func (k Key) of(m events.Message) error {
	_, rest, _ := strings.Cut(m.Subject, ".")
	controller, _, _ := strings.Cut(rest, ".")
	if len(k.Controllers) == 0 || slices.Contains(k.Controllers, controller) {
		return nil
	}
	return unproven("key %s does not count for %s", k.ID, cut(controller))
}

func cut(text string) string { return text[:min(len(text), 32)] }
