package sign

import (
	"crypto/ed25519"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Signer signs turns or outcomes with one key. A nil Signer signs nothing. It is safe for
// concurrent use.
type Signer struct {
	file *file[identity]

	mu  sync.Mutex
	own map[string]ed25519.PublicKey // every key that it has signed with
}

// identity is a key with what is derived from it.
type identity struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
	id      string
}

func parseIdentity(text []byte) (identity, error) {
	private, err := ParsePrivate(text)
	if err != nil {
		return identity{}, err
	}
	public := private.Public().(ed25519.PublicKey)
	return identity{private: private, public: public, id: idOf(public)}, nil
}

// NewSigner makes a signer from a private key in PEM.
//
// Errors: the text is no private key.
func NewSigner(private []byte) (*Signer, error) {
	key, err := parseIdentity(private)
	if err != nil {
		return nil, err
	}
	return &Signer{file: fixed(key)}, nil
}

// SignerFile makes a signer from the key in a file, which it reads again when the file changes.
// If a later content is invalid, it calls warn once and keeps the previous key.
//
// Errors: the file cannot be read, or holds no private key.
func SignerFile(path string, warn func(error)) (*Signer, error) {
	f, err := open(path, parseIdentity, warn)
	if err != nil {
		return nil, err
	}
	return &Signer{file: f}, nil
}

// Turn signs a turn that will be stored after the sequence expect on its subject. It changes the
// headers.
func (s *Signer) Turn(m events.Message, expect uint64, now time.Time) {
	s.sign(m, turn, strconv.FormatUint(expect, 10), now)
}

// Outcome signs an outcome that will be stored under an id. It changes the headers.
func (s *Signer) Outcome(m events.Message, id string, now time.Time) {
	s.sign(m, outcome, id, now)
}

func (s *Signer) sign(m events.Message, p purpose, place string, now time.Time) {
	if s == nil {
		return
	}
	set(m, p, place, s.key(), now)
}

// key is the current key, and adds it to own.
func (s *Signer) key() identity {
	key := s.file.get()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		s.own = map[string]ed25519.PublicKey{}
	}
	s.own[key.id] = key.public
	return key
}

// OwnTurn reports whether a turn was signed with a current or previous key of this signer. Without
// a signer, every turn counts as its own.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func (s *Signer) OwnTurn(m events.Message) error { return s.check(turn, m, TurnWithin) }

// OwnOutcome is [Signer.OwnTurn] for an outcome.
func (s *Signer) OwnOutcome(m events.Message) error { return s.check(outcome, m, OutcomeWithin) }

func (s *Signer) check(p purpose, m events.Message, within time.Duration) error {
	if s == nil {
		return nil
	}
	c, err := read(p, m)
	if err != nil {
		return err
	}
	s.key()
	s.mu.Lock()
	public, ok := s.own[c.key]
	s.mu.Unlock()
	if !ok {
		return unproven("key %q is not ours", cut(c.key))
	}
	if err := c.together(m, within); err != nil {
		return err
	}
	if err := p.stands(m); err != nil {
		return err
	}
	if !verified.verify(public, c.said, c.signature) {
		return unproven("key %s has not signed this", c.key)
	}
	return nil
}

// ID is the ID of the current key.
func (s *Signer) ID() string { return s.key().id }
