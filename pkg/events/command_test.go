package events

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// A command is special by the combination of its verb, kind and subresource. If one of the three
// differs, it is a plain request.
func TestWhichCommandsAreSpecial(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		is      func(Command) bool
	}{
		"signs":        {Command{Verb: VerbPatch, Kind: kinds.ConfigMaps.Name, Subresource: query.SubSignatures}, Command.Signs},
		"certifies":    {Command{Verb: VerbPatch, Kind: kinds.CertificateSigningRequests.Name, Subresource: query.SubCertificate}, Command.Certifies},
		"fills tokens": {Command{Verb: VerbPatch, Kind: kinds.Secrets.Name, Subresource: query.SubToken}, Command.FillsToken},
		"asks expiry":  {Command{Verb: VerbAsk, Kind: kinds.Secrets.Name, Subresource: query.SubExpiry}, Command.AsksExpiry},
	} {
		if !c.is(c.command) {
			t.Errorf("%+v does not: %s", c.command, name)
		}
		for what, change := range map[string]func(*Command){
			"verb": func(c *Command) { c.Verb = VerbUpdate }, "kind": func(c *Command) { c.Kind = kinds.Pods.Name }, "subresource": func(c *Command) { c.Subresource = "status" },
			"no subresource": func(c *Command) { c.Subresource = "" },
		} {
			other := c.command
			if change(&other); c.is(other) {
				t.Errorf("%s, with another %s: %+v", name, what, other)
			}
		}
	}
	about := Command{Verb: VerbAsk, Kind: kinds.Secrets.Name, Subresource: query.SubExpiry, Of: &metav1.OwnerReference{}}
	if about.AsksExpiry() {
		t.Error("an ask about an owner asks when a token expires")
	}
	for what, names := range map[string][]string{
		"subresources": {query.SubSignatures, query.SubCertificate, query.SubToken, query.SubExpiry, query.SubReview, query.SubApproval, query.SubTypes, query.SubReadings, query.SubRanges, query.SubUsers, query.SubObjects, query.SubContents},
		"reasons":      {query.NotToBeSigned, query.NoKey, query.NoToken, query.OtherAccount, query.NoMatch, query.NoSubresource, BadSignature},
	} {
		if slices.Sort(names); len(slices.Compact(names)) != map[string]int{"subresources": 12, "reasons": 7}[what] || names[0] == "" {
			t.Errorf("two of the %s are the same, or one is empty: %v", what, names)
		}
	}
}

// Only a refusal because of the kind or the subresource means that something is not served.
func TestWhatIsLacking(t *testing.T) {
	for reason, lacks := range map[string]bool{query.NoMatch: true, query.NoSubresource: true, "Forbidden": false, "": false} {
		if got := (Result{Status: Refused, Reason: reason}).Lacks(); got != lacks {
			t.Errorf("refused for %q: it is lacking: %t", reason, got)
		}
		if (Result{Status: Failed, Reason: reason}).Lacks() {
			t.Errorf("failed for %q: it is lacking", reason)
		}
	}
}

// The wait doubles with each failure after the first, up to the longest.
func TestHowLongAKeyBacksOff(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 5 * time.Millisecond, 1: 5 * time.Millisecond, 2: 10 * time.Millisecond, 3: 20 * time.Millisecond, 17: 327680 * time.Millisecond,
		18: 655360 * time.Millisecond, 19: 1000 * time.Second, 20: 1000 * time.Second, 1 << 40: 1000 * time.Second,
	} {
		if got := Backoff(n, FirstBackoff, LongestBackoff); got != want {
			t.Errorf("after %d failures it waits %v, want %v", n, got, want)
		}
	}
	if got := Backoff(3, time.Second, 4*time.Second); got != 4*time.Second {
		t.Errorf("the back-off is %v, want 4s", got)
	}
	if got := Backoff(1, time.Minute, time.Second); got != time.Second {
		t.Errorf("with a maximum below the first back-off it is %v, want 1s", got)
	}
}

// Over names the first kind, by name, whose epoch has ended, or none.
func TestWhichEpochsAreOver(t *testing.T) {
	for name, c := range map[string]struct {
		was, now Epochs
		kind     kinds.Name
	}{
		"none": {nil, nil, ""}, "the same": {Epochs{"pods": 2}, Epochs{"pods": 2}, ""}, "an earlier one": {Epochs{"pods": 2}, Epochs{"pods": 1}, ""},
		"a later one": {Epochs{"pods": 2}, Epochs{"pods": 3}, "pods"}, "of one that had none": {nil, Epochs{"pods": 1}, "pods"},
		"several": {Epochs{"c": 1}, Epochs{"c": 2, "b": 1, "d": 1, "a": 0}, "b"},
	} {
		if kind, over := c.was.Over(c.now); kind != c.kind || over != (c.kind != "") {
			t.Errorf("%s: %q is over: %t, want %q", name, kind, over, c.kind)
		}
	}
	if got := (Epochs{"a": 2, "b": 7, "c": 3}).Newest(); got != 7 {
		t.Errorf("the newest epoch is %d, want 7", got)
	}
	if got := (Epochs{}).Newest(); got != 0 {
		t.Errorf("the newest of no epochs is %d, want 0", got)
	}
}

// Each part of a request changes the digest, and so does the order; notices do not.
func TestWhatMakesTheSameRequests(t *testing.T) {
	of := func(change func(*Command)) Command {
		c := Command{Verb: VerbUpdate, Kind: "pods", Namespace: "ns", Name: "a", Subresource: "status", If: &If{UID: "u", ResourceVersion: "7"}, Body: []byte(`{}`)}
		change(&c)
		return c
	}
	plain := of(func(*Command) {})
	seen := map[uint64]string{Digest([]Command{plain}): "the command", Digest(nil): "nothing"}
	for what, change := range map[string]func(*Command){
		"verb": func(c *Command) { c.Verb = VerbPatch }, "kind": func(c *Command) { c.Kind = "nodes" }, "namespace": func(c *Command) { c.Namespace = "" },
		"name": func(c *Command) { c.Name = "b" }, "subresource": func(c *Command) { c.Subresource = "" }, "uid": func(c *Command) { c.If = &If{UID: "v", ResourceVersion: "7"} },
		"version": func(c *Command) { c.If = &If{UID: "u", ResourceVersion: "8"} }, "condition": func(c *Command) { c.If = nil }, "body": func(c *Command) { c.Body = []byte(`[]`) },
		"a name in the namespace": func(c *Command) { c.Namespace, c.Name = "nsa", "" },
	} {
		digest := Digest([]Command{of(change)})
		if other, twice := seen[digest]; twice {
			t.Errorf("another %s is the same request as %s", what, other)
		}
		seen[digest] = what
	}
	if other := of(func(c *Command) { c.Name = "b" }); Digest([]Command{plain, other}) == Digest([]Command{other, plain}) {
		t.Error("the digest does not depend on the order of the commands")
	}
	if told := of(func(c *Command) { c.OnFailed = &Notice{Message: strings.Repeat("x", 9)} }); Digest([]Command{told}) != Digest([]Command{plain}) {
		t.Error("the digest depends on a command's Event")
	}
}

// The writer searches for answers that no single request gives, and never requests them as a
// subresource of the object.
func TestWhatIsSearched(t *testing.T) {
	for sub, want := range map[string]bool{query.SubContents: true, query.SubUsers: true, query.SubTypes: true, query.SubReadings: true, query.SubReview: true, query.SubExpiry: true, query.SubObjects: true, "scale": false, "": false} {
		if got := (Command{Verb: VerbAsk, Subresource: sub}).Searches(); got != want {
			t.Errorf("an ask for %q is searched: %v", sub, got)
		}
		if (Command{Verb: VerbUpdate, Subresource: sub}).Searches() {
			t.Errorf("an update of %q is searched", sub)
		}
	}
}

// If encoding lost a condition, a forbidden command would be carried out.
func TestTheConditionThatNothingNeedsTravels(t *testing.T) {
	of := func(when If) Turn {
		return Turn{Controller: "c", Lane: LaneWrite, Key: Key{Name: "a"}, Commands: []Command{{
			Verb: VerbPatch, Kind: "servicecidrs.networking.k8s.io", Version: "v1", Name: "a", If: &when, Body: []byte(`{}`),
		}}}
	}
	turn, other := of(If{UID: "u", Unused: true}), of(If{UID: "u"})
	if text := string(turn.AppendDecision(nil)); !strings.Contains(text, `"if":{"uid":"u","unused":true}`) {
		t.Errorf("the decision is written as %s", text)
	}
	if turn.SameDecision(other) {
		t.Error("a command under the condition is the same as one without")
	}
}

// If encoding lost a condition, a forbidden command would be carried out.
func TestTheConditionThatNothingIsSharedTravels(t *testing.T) {
	of := func(when If) Turn {
		return Turn{Controller: "c", Lane: LaneWrite, Key: Key{Name: "a"}, Commands: []Command{{
			Verb: VerbPatch, Kind: "nodes", Version: "v1", Name: "a", If: &when, Body: []byte(`{}`),
		}}}
	}
	turn, other := of(If{UID: "u", Unshared: true}), of(If{UID: "u"})
	if text := string(turn.AppendDecision(nil)); !strings.Contains(text, `"if":{"uid":"u","unshared":true}`) {
		t.Errorf("the decision is written as %s", text)
	}
	if turn.SameDecision(other) {
		t.Error("a command under the condition is the same as one without")
	}
}
