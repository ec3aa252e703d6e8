package shard

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

var web = events.Key{Namespace: "default", Name: "web"}

// Keys are spread evenly over the shards, and every replica puts a key into the same one.
func TestKeysAreSpreadOverShards(t *testing.T) {
	const each = 200
	counts := make([]int, Count)
	for i := range Count * each {
		counts[Of(events.Key{Namespace: "default", Name: string(rune('a'+i%26)) + "-" + string(rune(0x4e00+i))})]++
	}
	for s, n := range counts {
		if n < each/2 || n > 2*each {
			t.Errorf("shard %d has %d keys of %d", s, n, Count*each)
		}
	}
	if got := Of(events.Key{Kind: "pods", Namespace: "default", Name: "web"}); got != Of(events.Key{Kind: "pods", Namespace: "default", Name: "web"}) || got == Of(web) && got == Of(events.Key{Kind: "pods"}) {
		t.Errorf("the shard is %d", got)
	}
}

// A single replica has every shard, and replicas of all versions put a key into the same shard.
func TestWhichShardAKeyIsIn(t *testing.T) {
	if All.Size() != 64 || Count != 64 || !All.Has(0) || !All.Has(Count-1) {
		t.Errorf("of %d shards %d are in All, want 64 of 64", Count, All.Size())
	}
	for at := range Count {
		one := Set(0).With(at)
		for other := range Count {
			if one.Has(other) != (at == other) || one.Size() != 1 {
				t.Errorf("shard %d is in the share of shard %d: %t", other, at, one.Has(other))
			}
		}
	}
	for key, want := range map[events.Key]int{
		web: 58, {Kind: "pods", Namespace: "default", Name: "web"}: 2, {Name: "node-1"}: 1, {Namespace: "default", Name: "w135"}: 0,
	} {
		if got := Of(key); got != want {
			t.Errorf("%v is in shard %d, want %d", key, got, want)
		}
	}
}
