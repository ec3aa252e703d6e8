package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// The content types of bodies on the bus.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// scheme has the Go types of every kind that can be on the bus in full.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, admissionregistrationv1.AddToScheme, apiserverinternalv1alpha1.AddToScheme, batchv1.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme, storagemigrationv1beta1.AddToScheme, resourcev1.AddToScheme, resourcev1alpha3.AddToScheme, resourcev1beta2.AddToScheme, metav1.AddMetaToScheme, schedulingv1alpha2.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("register the built-in kinds: %v", err)) // a programming error, found by every test
		}
	}
	return s
}

var (
	codecs = serializer.NewCodecFactory(scheme)
	proto  = protobuf.NewSerializer(scheme, scheme)
)

// Scheme is the registry of the Go types of the kinds in this package. It must
// not be changed.
func Scheme() *runtime.Scheme { return scheme }

// Decode gives the object in a body. A full body becomes the kind's Go type;
// a body in metadata form becomes *metav1.PartialObjectMetadata.
//
// Errors: the content type is unknown, the bytes are damaged, or the kind has
// no Go type here.
func Decode(kind Kind, contentType string, body []byte) (metav1.Object, error) {
	if kind.Form == Metadata {
		return decodeMetadata(kind, contentType, body)
	}
	var (
		obj runtime.Object
		err error
	)
	switch contentType {
	case Protobuf:
		obj, _, err = proto.Decode(body, nil, nil)
	case JSON:
		gvk := kind.GVK()
		obj, _, err = codecs.UniversalDeserializer().Decode(body, &gvk, nil)
	default:
		return nil, fmt.Errorf("decode %s: content type %q is neither JSON nor protobuf", kind.Name, contentType)
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", kind.Name, err)
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("decode %s: %T has no metadata", kind.Name, obj)
	}
	return meta, nil
}

func decodeMetadata(kind Kind, contentType string, body []byte) (metav1.Object, error) {
	obj := &metav1.PartialObjectMetadata{}
	var err error
	switch contentType {
	case Protobuf:
		err = obj.Unmarshal(body)
	case JSON:
		err = json.Unmarshal(body, obj)
	default:
		err = fmt.Errorf("content type %q is neither JSON nor protobuf", contentType)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the metadata of %s: %w", kind.Name, err)
	}
	return obj, nil
}

// Encode encodes an object in protobuf, in the form that [Decode] reads: the plain message for
// *metav1.PartialObjectMetadata, Kubernetes' protobuf envelope for everything else. It sets the
// object's TypeMeta to the kind's.
//
// Errors: the object's type has no protobuf form (custom resources have none;
// their bodies are JSON).
func Encode(kind Kind, obj runtime.Object) ([]byte, error) {
	if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return meta.Marshal()
	}
	obj.GetObjectKind().SetGroupVersionKind(kind.GVK())
	var buf bytes.Buffer
	if err := proto.Encode(obj, &buf); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind.Name, err)
	}
	return buf.Bytes(), nil
}
