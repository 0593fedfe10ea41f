// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/site_words.h"

#include "tests/catch.h"

using cistern::shim::names_operator;

TEST_CASE("an operator is named by its words, however they are written") {
  CHECK(names_operator("relu", "relu"));
  CHECK(names_operator("at::native::relu_kernel(int)", "relu"));
  CHECK(names_operator("ReluOp", "relu"));
  CHECK(names_operator("batch_norm", "batch_norm"));
  CHECK(names_operator("BatchNormForward", "batch_norm"));
  CHECK(names_operator("op/batch-norm", "batch_norm"));
  CHECK(names_operator("batchNorm", "batch_norm"));
  CHECK(names_operator("Relu6Kernel", "relu6"));
}

TEST_CASE("a part of a word names no operator") {
  CHECK_FALSE(names_operator("relu6", "relu"));
  CHECK_FALSE(names_operator("prelu", "relu"));
  CHECK_FALSE(names_operator("expand", "exp"));
  CHECK_FALSE(names_operator("summary", "sum"));
  CHECK_FALSE(names_operator("batch", "batch_norm"));
  CHECK_FALSE(names_operator("batch_of_norm", "batch_norm"));
  CHECK_FALSE(names_operator("batchnorm", "batch_norm"));
  CHECK_FALSE(names_operator("", "sum"));
}
