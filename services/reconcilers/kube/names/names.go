// Package names derives the names of created objects. Upstream ends a name with
// random characters. Here they are derived from the inputs of the decision, so that
// a decision made twice creates one object and not two.
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
	// StemLength is how many characters of a generateName the API server keeps.
	// Upstream: apiserver/pkg/storage/names.
	StemLength = 63 - suffixLength
)

// Prefix is the generateName of an owner's dependents: its name and a dash, without
// the dash if the name would be too long.
//
// Upstream: pkg/controller/controller_utils.go, the prefix of pods.
func Prefix(owner string) string {
	if len(owner)+1 > validation.DNS1123SubdomainMaxLength {
		return owner
	}
	return owner + "-"
}

// Derives reports whether a name has the form of the names of an owner's dependents.
func Derives(owner, name string) bool {
	suffix, ok := strings.CutPrefix(name, stem(owner))
	return ok && len(suffix) == suffixLength && strings.Trim(suffix, alphabet) == ""
}

// Derived returns count different names for new dependents of an owner. They depend
// on the owner's uid and resourceVersion, the attempt (any number that changes when
// an earlier attempt with these names failed) and the position. It skips names for
// which taken is true. The first names do not depend on count.
func Derived(owner metav1.Object, attempt uint64, count int, taken func(name string) bool) []string {
	return Suffixed(stem(owner.GetName()), owner, attempt, count, taken)
}

// Suffixed returns such names with another base, which must leave room for a suffix;
// see [StemLength].
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

// Attempt is the attempt number for an owner's next creates: another number than
// before if the key's last turn failed, and 0 otherwise.
func Attempt(s reconcile.Snapshot, k events.Key, owner metav1.Object) uint64 {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, owner)
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

// mix spreads every bit of a hash over all bits, because FNV leaves the last bytes
// of its input, where positions differ, in few bits of the sum.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
