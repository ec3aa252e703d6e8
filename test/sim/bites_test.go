package sim_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/controllers/job"
	"github.com/millrace/millrace/services/reconcilers/controllers/legacytokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/services/reconcilers/controllers/validatingadmissionpolicystatus"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/world"
)

// worldsToNotice is in how many worlds the rules have to detect a mistake. Most are detected in the first
// ten; that a claim gets two volumes takes a race that one world in some hundreds has.
const worldsToNotice = 1500

// notices fails unless a world of a shape breaks a rule with these controllers.
func notices(t *testing.T, shape, rule string, controllers ...reconcile.Any) {
	noticesBut(t, shape, "", rule, controllers...)
}

// noticesBut is notices in worlds that do not check some rules.
func noticesBut(t *testing.T, shape, ignore, rule string, controllers ...reconcile.Any) {
	options := shapes[shape].options
	options.Ignore = ignore
	noticesIn(t, options, rule, controllers...)
}

// noticesIn is notices in worlds of a test's own.
func noticesIn(t *testing.T, options world.Options, rule string, controllers ...reconcile.Any) {
	t.Parallel()
	for s := uint64(1); s <= worldsToNotice; s++ {
		options.Seed, options.Mute = s, true
		if err := world.New(options, controllers).Run(); err != nil && strings.Contains(err.Error(), rule) {
			t.Logf("world %d noticed: %.300v", s, err)
			return
		}
	}
	t.Errorf("%d worlds noticed nothing", worldsToNotice)
}

// mistaken is a controller that misreads a part of its view.
func mistaken[V any](c reconcile.Controller[V], wrong func(v *V, now time.Time)) reconcile.Any {
	decide := c.Decide
	c.Decide = func(v V, now time.Time) reconcile.Decision {
		wrong(&v, now)
		return decide(v, now)
	}
	return c
}

// The worlds of autoscalers are useful only if they detect a faulty autoscaler.
func TestItBitesAutoscalers(t *testing.T) {
	type view = horizontalpodautoscaler.View
	for name, tc := range map[string]struct {
		shape, rule string
		wrong       func(*view, time.Time)
	}{
		"it forgets what it did": {"autoscalers, calm", "A2", func(v *view, _ time.Time) { v.Memory.Added, v.Memory.Removed = nil, nil }},
		"it goes beyond its bounds": {"autoscalers, calm", "A1", func(v *view, _ time.Time) {
			v.Autoscaler = v.Autoscaler.DeepCopy()
			v.Autoscaler.Spec.MaxReplicas++
		}},
		"it judges an answer again": {"autoscalers", "A3", func(v *view, _ time.Time) {
			if v.Tried != nil && v.Tried.Version != "" {
				verdict := *v.Verdict
				verdict.To++
				v.Verdict = &verdict
			}
		}},
		"it does not listen": {"autoscalers, calm", "I1", func(v *view, _ time.Time) {
			if v.Readings != nil {
				v.Readings = &query.Readings{Scale: v.Readings.Scale}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			notices(t, tc.shape, tc.rule, append(workloadsControllers(), mistaken(horizontalpodautoscaler.New(autoscaling), tc.wrong))...)
		})
	}
}

// hasty is the job controller that deletes pods in the decision that says why.
func hasty() reconcile.Any {
	c := job.Controller
	decide := c.Decide
	c.Decide = func(v job.View, now time.Time) reconcile.Decision {
		d := decide(v, now)
		if !d.ReportFirst {
			return d
		}
		d.ReportFirst = false
		for _, p := range v.Pods {
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				d.Commands = append(d.Commands, reconcile.Delete(kinds.Pods.Kind, p))
			}
		}
		return d
	}
	return c
}

// Rules judge by order, and by the result, where a controller relies on the order of a report
// and a write.
func TestItBitesOrder(t *testing.T) {
	others := jobs()[1:]
	t.Run("deleted before it says why", func(t *testing.T) {
		noticesBut(t, "leaders", "I4", "O1", append(others, hasty())...)
	})
	t.Run("deleted before it says why, by what was shown", func(t *testing.T) {
		notices(t, "leaders", "I4", append(others, hasty())...)
	})
	t.Run("deleted before it says why, by what it does", func(t *testing.T) {
		noticesBut(t, "leaders", "I4 O1", "O2", append(others, hasty())...)
	})
	t.Run("created and never told", func(t *testing.T) {
		notices(t, "two of each", "O3", mistaken(deployment.Controller, func(v *deployment.View, _ time.Time) {
			for i, set := range v.Sets {
				v.Sets[i] = set.DeepCopy()
				if v.Sets[i].Annotations == nil {
					v.Sets[i].Annotations = map[string]string{}
				}
				v.Sets[i].Annotations["deployment.kubernetes.io/revision-history"] = "0" // as if it were an old one
			}
		}), replicaset.Controller, garbagecollector.Controller)
	})
}

func TestItBitesServers(t *testing.T) {
	t.Run("who is not seen is gone", func(t *testing.T) {
		notices(t, "servers", "A4", mistaken(storageversiongc.Controller, func(v *storageversiongc.View, now time.Time) {
			v.Leases, v.At = map[string]bool{}, now
			for _, server := range v.Unseen {
				v.Leases[server] = false
			}
		}), validatingadmissionpolicystatus.Controller)
	})
	t.Run("no server goes", func(t *testing.T) {
		notices(t, "servers, calm", "I1", mistaken(storageversiongc.Controller, func(v *storageversiongc.View, _ time.Time) { v.Unseen = nil }))
	})
	t.Run("everything fits", func(t *testing.T) {
		notices(t, "servers, calm", "I1", storageversiongc.Controller, mistaken(validatingadmissionpolicystatus.Controller, func(v *validatingadmissionpolicystatus.View, _ time.Time) {
			if v.Types != nil {
				v.Types = new(query.Types)
			}
		}))
	})
}

func TestItBitesOldTokens(t *testing.T) {
	type view = legacytokencleaner.View
	cleaner := func(wrong func(*view, time.Time)) reconcile.Any {
		return mistaken(legacytokencleaner.New(legacytokencleaner.Config{Period: access.Unused}), wrong)
	}
	t.Run("uses do not matter", func(t *testing.T) {
		notices(t, "legacy, calm", "A5", cleaner(func(v *view, _ time.Time) {
			v.Secret = v.Secret.DeepCopy()
			delete(v.Secret.Labels, "kubernetes.io/legacy-token-last-used")
		}))
	})
	t.Run("it is early", func(t *testing.T) {
		notices(t, "legacy, calm", "A5", cleaner(func(v *view, _ time.Time) { v.Period = 0 }))
	})
	t.Run("nothing is of Kubernetes", func(t *testing.T) {
		notices(t, "legacy, calm", "I1", cleaner(func(v *view, _ time.Time) { v.Listed = false }))
	})
}

// What an exception leaves to time is judged half an hour later.
func TestItBitesWhatNeverComes(t *testing.T) {
	t.Run("a quota that is never counted again", func(t *testing.T) {
		notices(t, "quotas", "half an hour later, the quota", resourcequota.New(resourcequota.Config{Period: -1}))
	})
	t.Run("a Job that ended by a clock that was ahead, and is never looked at again", func(t *testing.T) {
		expiry := ttlafterfinished.Controller
		decide := expiry.Decide
		expiry.Decide = func(v ttlafterfinished.View, now time.Time) reconcile.Decision {
			for _, c := range v.Job.Status.Conditions {
				if c.LastTransitionTime.After(world.Epoch.Add(8 * time.Minute)) {
					return reconcile.Nothing("the mistake")
				}
			}
			return decide(v, now)
		}
		options := shapes["jobs"].options
		options.Trouble = world.ClockJumps
		noticesIn(t, options, "half an hour later, sum", instead(shapes["jobs"].controllers(), expiry)...)
	})
}
