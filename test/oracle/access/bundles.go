package access

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	publisher "k8s.io/kubernetes/pkg/controller/certificates/clustertrustbundlepublisher"

	"github.com/millrace/millrace/services/reconcilers/controllers/clustertrustbundlepublisher"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// BundleCA is the certificate that is published in a ClusterTrustBundle.
var BundleCA = func() []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: objects.Now.Add(-time.Hour), NotAfter: objects.Now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}()

// BundleSigner is the signer of that bundle.
const BundleSigner = "kubernetes.io/kube-apiserver-serving"

// Bundles is the publisher of ClusterTrustBundles.
var Bundles = frozen.Pair{
	Theirs: buildBundlePublisher, Ours: clustertrustbundlepublisher.New(clustertrustbundlepublisher.Config{RootCA: BundleCA}), Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}

// buildBundlePublisher starts upstream's informer, which is the publisher's own, so that it has synced before
// the publisher runs: otherwise the publisher would sync again later.
func buildBundlePublisher(ctx context.Context, _ informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	content, err := dynamiccertificates.NewStaticCAContent("kube-apiserver-serving", BundleCA)
	if err != nil {
		return nil, err
	}
	p, err := publisher.NewBetaClusterTrustBundlePublisher(BundleSigner, content, c)
	if err != nil {
		return nil, err
	}
	go kcm.Field(p, "ctbInformer").(cache.SharedIndexInformer).RunWithContext(ctx)
	return func() { p.Run(ctx) }, nil
}
