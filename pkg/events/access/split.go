package access

import (
	"slices"
	"strings"
)

// The users of writers that share out the controllers, so that a stolen password gives fewer
// permissions than all controllers need. Each is in an account of its own.
const (
	// WriterWorkloads carries out the turns of all controllers that the other two do not.
	WriterWorkloads = "writer-workloads"
	// WriterCollectors carries out the turns of controllers that delete or rewrite objects of
	// every kind.
	WriterCollectors = "writer-collectors"
	// WriterCredentials carries out the turns of controllers that change Secrets, service
	// accounts and roles, and of those for certificate requests.
	WriterCredentials = "writer-credentials"
)

// shares are the controllers of each of these writers except [WriterWorkloads], which has the
// rest.
var shares = map[string][]string{
	WriterCollectors: {
		"garbage-collector-controller", "namespace-controller", "pod-garbage-collector-controller", "storage-version-migrator-controller", "ttl-after-finished-controller",
	},
	WriterCredentials: {
		"bootstrap-signer-controller", "certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller", "certificatesigningrequest-signing-controller", "clusterrole-aggregation-controller", "kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"legacy-serviceaccount-token-cleaner-controller", "podcertificaterequest-cleaner-controller", "root-ca-certificate-publisher-controller",
		"serviceaccount-controller", "serviceaccount-token-controller",
		"token-cleaner-controller",
	},
}

// SplitWriters are the users of writers that share out the controllers.
var SplitWriters = []string{WriterWorkloads, WriterCollectors, WriterCredentials}

// Carries reports whether a user carries out the turns of a controller: [Writer] does for all,
// each of [SplitWriters] for its share, any other user for none.
func Carries(user, controller string) bool {
	switch user {
	case Writer:
		return true
	case WriterWorkloads:
		return !Carries(WriterCollectors, controller) && !Carries(WriterCredentials, controller)
	}
	return slices.Contains(shares[user], controller)
}

// Share are the controllers whose turns a user carries out.
func Share(user string, controllers []string) []string {
	return slices.DeleteFunc(slices.Clone(controllers), func(c string) bool { return !Carries(user, c) })
}

// accountOf is the account of a writer.
func accountOf(writer string) string {
	return Writers + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(writer, Writer), "-", "_"))
}

// splitting are the users of writers that have a share of these controllers.
func splitting(controllers []string) []string {
	return slices.DeleteFunc(slices.Clone(SplitWriters), func(user string) bool { return len(Share(user, controllers)) == 0 })
}

// writerAccounts are the accounts of all writers.
func writerAccounts(controllers []string) []string {
	all := []string{Writers}
	for _, user := range splitting(controllers) {
		all = append(all, accountOf(user))
	}
	return all
}

// splitWriter is the writer of a share: it may take and acknowledge only the turns of its
// controllers, and publish only their outcomes. It does not listen to other writers, which have
// other turns.
func splitWriter(user string, controllers []string) service {
	s := writer(controllers)
	s.user, s.account = user, accountOf(user)
	s.acks, s.says = nil, nil
	for _, c := range controllers {
		if !Carries(user, c) {
			s.never = append(s.never, "CONSUMER.MSG.NEXT.TURN_"+c+"."+WriterConsumer)
			continue
		}
		s.acks = append(s.acks, "TURN_"+c+"."+WriterConsumer)
		s.says = append(s.says, "outcome."+c+".>")
	}
	return s
}
