package oracle

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// claims is true for adoptions and releases, the only patches that the two
// controllers make.
func claims(e Effect) bool { return e.Verb == patch }

// bears is true for the birth of a replica set.
func bears(e Effect) bool { return e.Verb == create && e.Resource == "replicasets" }

func claimsOrBears(e Effect) bool { return claims(e) || bears(e) }

// fairReplicaSet leaves of both what they do in the same step:
//
//   - When pods change hands, nothing else. Upstream goes on in the same sync as
//     if an adoption that it has just made were seen; we wait until it is.
func fairReplicaSet(theirs, ours []Effect) ([]Effect, []Effect) {
	if slices.ContainsFunc(theirs, claims) || slices.ContainsFunc(ours, claims) {
		return only(theirs, claims), only(ours, claims)
	}
	return theirs, ours
}

// fairDeployment leaves of both what they do in the same step:
//
//   - When replica sets change hands, nothing else, as for pods.
//   - When the new set is born, that, the Event about it and what is said about
//     progress at that moment. Upstream may scale old sets in the same sync, and
//     reports on the new one as if it were seen.
//   - When the Deployment is rolled back, no status: it would be that of an
//     object that is about to change. Upstream writes some of it before.
func fairDeployment(theirs, ours []Effect) ([]Effect, []Effect) {
	any := func(is func(Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	switch {
	case any(claims):
		return only(theirs, claims), only(ours, claims)
	case any(bears):
		return firstWords(theirs), firstWords(ours)
	case any(rollsBack):
		return only(theirs, reportsNot), only(ours, reportsNot)
	}
	return theirs, ours
}

func rollsBack(e Effect) bool { return e.Verb == update && e.Resource == "deployments" }

func reportsNot(e Effect) bool { return e.Resource != "deployments/status" }

// firstWords is a birth, the Event about it and, of the status written next, the
// condition Progressing.
func firstWords(effects []Effect) []Effect {
	at := slices.IndexFunc(effects, bears)
	if at < 0 {
		return effects
	}
	kept := only(effects, func(e Effect) bool {
		return bears(e) || e.Verb == event && strings.Contains(e.Body, effects[at].Name+" from 0 to ")
	})
	for _, e := range effects[at:] {
		if !reportsNot(e) {
			e.Body = progressing(e.Body)
			return append(kept, e)
		}
	}
	return kept
}

// progressing is the condition Progressing in a Deployment.
func progressing(body string) string {
	deployment, err := decoded("deployments", body)
	if err != nil {
		return body
	}
	for _, c := range deployment.(*appsv1.Deployment).Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return text(c)
		}
	}
	return ""
}

func only(effects []Effect, is func(Effect) bool) []Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return !is(e) })
}
