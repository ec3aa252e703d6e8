// Package names derives the names of created objects. Upstream leaves the last
// characters of a name to chance; ours follow from what the create was decided
// on, so that a decision made twice gives one object and not two.
package names

import (
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// alphabet has no vowels and nothing that looks like another character, so
	// that no suffix spells a word. Upstream: util/rand's alphabet.
	alphabet     = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength = 5
	// StemLength is what the API server keeps of a generateName, in characters.
	// Upstream: apiserver/pkg/storage/names.
	StemLength = 63 - suffixLength
)

// Prefix is the generateName of an owner's dependents: its name and a dash,
// without the dash if that would be too long a name.
//
// Upstream: pkg/controller/controller_utils.go, the prefix of pods.
func Prefix(owner string) string {
	if len(owner)+1 > validation.DNS1123SubdomainMaxLength {
		return owner
	}
	return owner + "-"
}

// Derives tells whether a name has the shape of those that an owner's
// dependents are given.
func Derives(owner, name string) bool {
	suffix, ok := strings.CutPrefix(name, stem(owner))
	return ok && len(suffix) == suffixLength && strings.Trim(suffix, alphabet) == ""
}

// Derived gives count different names for dependents that an owner is to have.
// They follow from the owner's uid and resourceVersion, the attempt (any number
// that changes when an earlier attempt under these names did not work out) and
// the position; no name is given for which taken is true. The first names do
// not depend on how many are asked for.
func Derived(owner metav1.Object, attempt uint64, count int, taken func(name string) bool) []string {
	return Suffixed(stem(owner.GetName()), owner, attempt, count, taken)
}

// Suffixed are such names under a stem of the caller's own, which must leave room
// for a suffix; see [StemLength].
func Suffixed(base string, owner metav1.Object, attempt uint64, count int, taken func(name string) bool) []string {
	seed := string(owner.GetUID()) + "/" + owner.GetResourceVersion() + "/" + strconv.FormatUint(attempt, 10) + "/"
	given := make(map[string]bool, count)
	derived := make([]string, 0, count)
	for position := 0; len(derived) < count; position++ {
		name := base + suffix(seed+strconv.Itoa(position))
		if given[name] || taken(name) {
			continue
		}
		given[name] = true
		derived = append(derived, name)
	}
	return derived
}

// Attempt is the attempt after what a key last did for an owner: another number than
// before if that failed, and 0 if it did not.
func Attempt(s reconcile.Snapshot, k events.Key, owner metav1.Object) uint64 {
	last, ok := reconcile.LastOf(s, k, events.Act, owner)
	if !ok {
		return 0
	}
	if _, failed := last.Failure(); !failed {
		return 0
	}
	return last.Turn
}

func stem(owner string) string {
	prefix := Prefix(owner)
	return prefix[:min(len(prefix), StemLength)]
}

func suffix(seed string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(seed)) // a hash never fails
	rest := mix(hash.Sum64())
	var text [suffixLength]byte
	for i := range text {
		text[i] = alphabet[rest%uint64(len(alphabet))]
		rest /= uint64(len(alphabet))
	}
	return string(text[:])
}

// mix spreads every bit of a hash over all of it: FNV alone leaves the last
// bytes of its input, where positions differ, in few bits of the sum.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
