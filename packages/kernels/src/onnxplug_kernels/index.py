"""Which module of ``ops`` has which operators, so that a process imports those it uses; a test compares."""

from __future__ import annotations

FAMILIES = {
    "activation": (
        "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Selu", "Shrink",
        "Sigmoid", "Softplus", "Softsign", "SwiGLU", "Swish", "ThresholdedRelu",
    ),
    "attention": ("Attention", "RotaryEmbedding"),
    "batch_norm": ("BatchNormalization",),
    "bitwise": ("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    "cast": ("BitCast", "Cast", "CastLike"),
    "contrib_activation": (
        "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "FastGelu", "Gelu",
        "GemmFastGelu", "QuickGelu",
    ),
    "contrib_attention": ("Attention", "MultiHeadAttention", "QAttention"),
    "contrib_causal_conv": ("CausalConvWithState",),
    "contrib_fused": (
        "ConvTransposeWithDynamicPads", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation",
        "NhwcConv", "TransposeMatMul",
    ),
    "contrib_gather": ("GatherBlockQuantized", "UnfoldTensor"),
    "contrib_gates": (
        "BranchwiseRMSNorm", "EngramGate", "GatedAdd", "GatedRMSNorm", "HyperConnectionPostMix",
        "HyperConnectionPreMix", "LinearAttentionGate", "ScaledSiLU",
    ),
    "contrib_gqa": ("GroupQueryAttention", "RotaryEmbedding"),
    "contrib_hash": ("MurmurHash3",),
    "contrib_matmul": (
        "CDist", "DynamicQuantizeMatMul", "MatMulBnb4", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits",
        "QGemm",
    ),
    "contrib_misc": (
        "CropAndResize", "ExpandDims", "GatherND", "GridSample", "Inverse", "NGramRepeatBlock", "Pad", "Range",
        "Trilu", "Unique",
    ),
    "contrib_moe": ("MoE", "QMoE"),
    "contrib_ngram": ("NGramHashMapping",),
    "contrib_norm": (
        "EmbedLayerNormalization", "GroupNorm", "QEmbedLayerNormalization", "SimplifiedLayerNormalization",
        "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    ),
    "contrib_places": (
        "GatedRelativePositionBias", "RelativePositionBias", "RemovePadding", "RestorePadding",
    ),
    "contrib_quant": (
        "DequantizeLinear", "NhwcMaxPool", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
        "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid",
        "QLinearSoftmax", "QLinearWhere", "QuantizeLinear",
    ),
    "contrib_recurrent": ("DynamicQuantizeLSTM",),
    "contrib_rotary": ("GemmaRotaryEmbedding", "MRotaryEmbedding"),
    "contrib_text": ("Tokenizer",),
    "conv": ("CausalConvWithState", "Conv", "ConvInteger", "QLinearConv"),
    "conv_transpose": ("Col2Im", "ConvTranspose"),
    "cumulative": ("CumProd", "CumSum"),
    "deform_conv": ("DeformConv",),
    "dropout": ("Dropout",),
    "elementwise": ("Add", "Clip", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow", "Sub", "Sum"),
    "experimental": ("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
    "gather": ("Gather", "GatherElements", "GatherND", "NonZero", "OneHot", "TopK", "Unique"),
    "grid_sample": ("AffineGrid", "GridSample"),
    "image": ("ImageDecoder",),
    "join": ("Compress", "Concat", "DepthToSpace", "Pad", "ReverseSequence", "Slice", "SpaceToDepth", "Split"),
    "linalg": ("Det", "Einsum", "Gemm", "MatMul", "Trilu"),
    "linear_attention": ("LinearAttention",),
    "logic": ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Where", "Xor"),
    "loss": ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    "ml_features": (
        "ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "Normalizer", "OneHotEncoder", "Scaler",
    ),
    "ml_linear": ("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor"),
    "ml_maps": ("CastMap", "CategoryMapper", "DictVectorizer", "LabelEncoder", "ZipMap"),
    "ml_tree": ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    "norm": (
        "GroupNormalization", "InstanceNormalization", "LRN", "LayerNormalization", "LpNormalization",
        "MeanVarianceNormalization", "RMSNormalization",
    ),
    "pool": ("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool", "MaxUnpool"),
    "quantize": ("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"),
    "quantized_matmul": ("MatMulInteger", "QLinearMatMul"),
    "random": ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "recurrent": ("GRU", "LSTM", "RNN"),
    "reduction": (
        "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ),
    "resize": ("Resize", "Upsample"),
    "roi": ("MaxRoiPool", "RoiAlign"),
    "scatter": ("Scatter", "ScatterElements", "ScatterND", "TensorScatter"),
    "sequence": (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence",
    ),
    "shape": (
        "Constant", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Identity", "Range", "Reshape", "Shape",
        "Size", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    ),
    "signal": ("BlackmanWindow", "DFT", "HammingWindow", "HannWindow", "MelWeightMatrix", "STFT"),
    "softmax": ("Hardmax", "LogSoftmax", "Softmax"),
    "text": ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    "tfidf": ("TfIdfVectorizer",),
    "training": ("Adagrad", "Adam", "Momentum"),
    "unary": (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
        "IsInf", "IsNaN", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
    ),
    "vision": ("CenterCropPad", "NonMaxSuppression"),
}  # fmt: skip
"""Module -> operators, of whatever domain."""
